//! What a schema has to be, and which change of one is no more than an addition.

use std::collections::HashSet;

use super::refusal::{Refusal, RefusalKind};
use super::schema::{Column, ColumnType, Schema};

/// Most columns of a kind. SQLite takes 2000 in a table; a statement over so many is slow long before.
const MOST_COLUMNS: usize = 500;
/// The longest name of a column, in bytes.
const LONGEST_NAME: usize = 200;
/// The columns that a store adds of its own.
const RESERVED: [&str; 3] = ["_stream", "_seq", "_expires"];

impl Schema {
    /// Whether this can be a kind: 1 to 500 columns; names of 1 to 200 bytes without control characters, none of which
    /// is another's in other case (a database takes them for the same), and none `_stream`, `_seq` or `_expires`; a key of
    /// columns that are there, each once, not optional, and neither real nor JSON.
    ///
    /// # Errors
    ///
    /// `BadSchema` naming the kind and, where there is one, the column.
    pub fn check(&self) -> Result<(), Refusal> {
        let bad = |message: &str| Refusal::new(RefusalKind::BadSchema, message).of_kind(&self.kind);
        if !(1..=MOST_COLUMNS).contains(&self.columns.len()) {
            return Err(bad(&format!("a kind has 1 to {MOST_COLUMNS} columns, and this one {}", self.columns.len())));
        }
        let mut names = HashSet::new();
        for Column { name, .. } in &self.columns {
            let folded = name.to_ascii_lowercase();
            let problem = if !(1..=LONGEST_NAME).contains(&name.len()) || name.chars().any(char::is_control) {
                "a name of a column has 1 to 200 bytes and no control characters"
            } else if RESERVED.contains(&folded.as_str()) {
                "the store needs this name itself: call the column otherwise"
            } else if !names.insert(folded) {
                "two columns have this name, or one that differs in case alone"
            } else {
                continue;
            };
            return Err(bad(problem).at_column(name));
        }
        let mut in_key = HashSet::new();
        for name in &self.key {
            let problem = match self.columns.iter().find(|column| column.name == *name) {
                None => "the key names it, and there is no such column",
                Some(_) if !in_key.insert(name) => "the key names it twice",
                Some(column) if column.optional => "a column of the key has to have a value: it cannot be optional",
                Some(Column { holds: ColumnType::Real | ColumnType::Json, .. }) => {
                    "a column of the key holds text, an integer or a boolean"
                }
                Some(_) => continue,
            };
            return Err(bad(problem).at_column(name));
        }
        Ok(())
    }

    /// What this schema becomes where rows of `to` come: `None` if it has all of `to` already, the wider one if `to`
    /// adds optional columns at the end.
    ///
    /// # Errors
    ///
    /// `SchemaConflict`, naming what differs, for every other difference.
    pub fn widened(&self, to: &Schema) -> Result<Option<Schema>, Refusal> {
        let conflict = |message: String| {
            let message = format!("{message}; append under another kind, or bring the schema in line");
            Refusal::new(RefusalKind::SchemaConflict, message).of_kind(&self.kind)
        };
        if self.kind != to.kind {
            return Err(conflict(format!("kind {} differs from it in name", to.kind)));
        }
        if self.key != to.key {
            let key = |schema: &Schema| crate::describe::brief(&format!("[{}]", schema.key.join(", ")));
            return Err(conflict(format!("the store's key is {}, and the new one {}", key(self), key(to))));
        }
        if self.on_conflict != to.on_conflict || self.retention != to.retention {
            return Err(conflict(format!(
                "the store has {:?} and retention by {:?}, the new schema {:?} and {:?}",
                self.on_conflict, self.retention, to.on_conflict, to.retention
            )));
        }
        let differs = |ours: &Column, theirs: &Column| {
            let say = |column: &Column| {
                let optional = if column.optional { "optional " } else { "" };
                let name = crate::describe::brief(&column.name);
                format!("{optional}{name} of {}", column.holds.described())
            };
            conflict(format!("the store has {} where the new schema has {}", say(ours), say(theirs)))
                .at_column(&theirs.name)
        };
        for (ours, theirs) in self.columns.iter().zip(&to.columns) {
            if ours != theirs {
                return Err(differs(ours, theirs));
            }
        }
        let both = self.columns.len().min(to.columns.len());
        let extra = |columns: &[Column]| columns[both..].iter().find(|column| !column.optional).cloned();
        if let Some(column) = extra(&self.columns) {
            return Err(conflict("the new schema lacks it, and it is not optional".to_owned()).at_column(&column.name));
        }
        if let Some(column) = extra(&to.columns) {
            let message = "it is new and not optional, and the rows that are there have no value for it".to_owned();
            return Err(conflict(message).at_column(&column.name));
        }
        Ok((to.columns.len() > both).then(|| to.clone()))
    }
}

impl ColumnType {
    /// In a sentence.
    pub(super) fn described(self) -> &'static str {
        match self {
            ColumnType::Text => "text",
            ColumnType::Integer => "a whole number",
            ColumnType::Real => "a number",
            ColumnType::Boolean => "true or false",
            ColumnType::Json => "any JSON",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn kind(columns: Value, key: &[&str]) -> Schema {
        serde_json::from_value(json!({"kind": "k", "columns": columns, "key": key})).unwrap()
    }

    fn column(name: &str, holds: &str) -> Value {
        json!({"name": name, "type": holds})
    }

    fn optional(name: &str) -> Value {
        json!({"name": name, "type": "text", "optional": true})
    }

    #[test]
    fn a_schema_that_cannot_be_one_is_refused_by_name() {
        kind(json!([column("a b\"'ä", "text"), column("n", "integer")]), &["n"]).check().unwrap();
        let many: Vec<_> = (0..=MOST_COLUMNS).map(|n| column(&format!("c{n}"), "text")).collect();
        let bad: [(Value, &[&str], Option<&str>); 11] = [
            (json!([]), &[], None),
            (json!(many), &[], None),
            (json!([column("", "text")]), &[], Some("")),
            (json!([column("a\0", "text")]), &[], Some("a\0")),
            (json!([column("_SEQ", "text")]), &[], Some("_SEQ")),
            (json!([column("a", "text"), column("A", "text")]), &[], Some("A")),
            (json!([column("a", "text")]), &["b"], Some("b")),
            (json!([column("a", "text")]), &["a", "a"], Some("a")),
            (json!([column("a", "real")]), &["a"], Some("a")),
            (json!([column("a", "json")]), &["a"], Some("a")),
            (json!([optional("a")]), &["a"], Some("a")),
        ];
        for (columns, key, named) in bad {
            let refusal = kind(columns, key).check().unwrap_err();
            assert_eq!(refusal.kind, RefusalKind::BadSchema);
            assert_eq!(refusal.column.as_deref(), named, "{refusal}");
        }
    }

    #[test]
    fn only_optional_columns_at_the_end_widen_a_schema() {
        let required = |name: &str| column(name, "text");
        let of = |columns: &[Value]| kind(json!(columns), &[]);
        let narrow = of(&[required("a")]);
        let wide = of(&[required("a"), optional("b")]);
        assert_eq!(narrow.widened(&narrow).unwrap(), None);
        assert_eq!(narrow.widened(&wide).unwrap(), Some(wide.clone()));
        assert_eq!(wide.widened(&narrow).unwrap(), None);
        let keyed = kind(json!([required("a")]), &["a"]);
        let mut replacing = narrow.clone();
        replacing.on_conflict = crate::records::Conflict::Replace;
        for (from, to, column) in [
            (&narrow, &of(&[required("a"), required("b")]), Some("b")),
            (&of(&[required("a"), required("b")]), &narrow, Some("b")),
            (&wide, &of(&[required("a"), optional("c")]), Some("c")),
            (&wide, &of(&[optional("b"), required("a")]), Some("b")),
            (&narrow, &of(&[optional("a")]), Some("a")),
            (&narrow, &keyed, None),
            (&narrow, &replacing, None),
        ] {
            let refusal = from.widened(to).unwrap_err();
            assert_eq!(refusal.kind, RefusalKind::SchemaConflict);
            assert_eq!(refusal.column.as_deref(), column, "{refusal}");
        }
    }
}
