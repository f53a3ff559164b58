//! Metrics and labels as a query names them, and as `/metrics` has them.

use std::collections::{BTreeMap, BTreeSet};

/// For each metric the labels with the values that it is asked for, or that it has.
pub(crate) type Names = BTreeMap<String, BTreeSet<(String, String)>>;

fn of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// `a="b", c=~"d|e"`: each alternative is a value of its own. What is asked for by a variable or any value is left out.
fn labels(text: &str) -> impl Iterator<Item = (String, String)> {
    text.split("\",").flat_map(|matcher| {
        let (name, value) = matcher.split_once('"').unwrap_or_default();
        let name: String = name.trim().chars().take_while(|c| of_a_name(*c)).collect();
        let values = value.trim_end().trim_end_matches('"').split('|');
        let values = values.filter(|value| value.chars().all(of_a_name) && !value.is_empty());
        values.map(move |value| (name.clone(), value.to_owned())).collect::<Vec<_>>()
    })
}

/// Every metric of ours in a text, with the labels in the braces behind it.
pub(crate) fn named(text: &str) -> Names {
    let text = text.replace("\\\"", "\"");
    let mut names = Names::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("lockhouse_") {
        let begins = !rest[..at].ends_with(of_a_name);
        rest = &rest[at..];
        let end = rest.find(|c| !of_a_name(c)).unwrap_or(rest.len());
        let name = &rest[..end];
        rest = &rest[end..];
        if !begins {
            continue;
        }
        let found = names.entry(name.to_owned()).or_default();
        if let Some((inside, _)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            // Where it comes from is not in what is scraped.
            found.extend(labels(inside).filter(|(name, _)| name != "job" && name != "instance"));
        }
    }
    names
}

/// What of the first is not in the second.
pub(crate) fn missing(asked: &Names, there: &Names) -> Vec<String> {
    let mut missing = Vec::new();
    for (name, labels) in asked {
        match there.get(name) {
            None => missing.push(name.clone()),
            Some(has) => {
                missing.extend(labels.difference(has).map(|(label, value)| format!("{name}{{{label}=\"{value}\"}}")))
            }
        }
    }
    missing
}

#[test]
fn a_query_names_its_metrics_and_labels() {
    let query = r#"sum(lockhouse_store_leases{job=~"$job", state=~"stale|malformed"}) > 0 and lockhouse_ready == 1"#;
    let asked = named(query);
    let pair = |label: &str, value: &str| (label.to_owned(), value.to_owned());
    let states = BTreeSet::from([pair("state", "malformed"), pair("state", "stale")]);
    let expected = [("lockhouse_ready".to_owned(), BTreeSet::new()), ("lockhouse_store_leases".to_owned(), states)];
    assert_eq!(asked, Names::from(expected));
    let there = named("lockhouse_store_leases{kind=\"writer\",state=\"stale\"} 1\n");
    assert_eq!(missing(&asked, &there), ["lockhouse_ready", "lockhouse_store_leases{state=\"malformed\"}"]);
}
