//! The contrast of every pair of a text's colour and its ground, in the light and in the dark, by the formula of the
//! WCAG 2: 4.5 or more. `browser` measures the same on the page as it is shown.

use std::collections::BTreeMap;

const STYLE: &str = include_str!("../../src/service/page/style.css");

/// The variables of one block.
fn variables(block: &str) -> BTreeMap<&str, [f64; 3]> {
    let declarations = block.split(';').filter_map(|declaration| declaration.trim().split_once(':'));
    let colours = declarations.filter_map(|(name, value)| {
        let (name, value) = (name.trim().strip_prefix("--")?, value.trim().strip_prefix('#')?);
        let part = |at: usize| f64::from(u8::from_str_radix(&value[at..at + 2], 16).unwrap()) / 255.0;
        Some((name, [part(0), part(2), part(4)]))
    });
    colours.collect()
}

fn luminance(colour: [f64; 3]) -> f64 {
    let linear = colour.map(|part| if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) });
    0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
}

fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn the_formula_is_that_of_the_standard() {
    assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 1e-9);
    let grey = 119.0 / 255.0;
    assert!((contrast([grey; 3], [1.0; 3]) - 4.48).abs() < 0.01);
}

#[test]
fn every_text_can_be_read_on_its_ground() {
    let blocks: Vec<_> =
        STYLE.split(":root {").skip(1).map(|rest| variables(rest.split('}').next().unwrap())).collect();
    let [light, dark] = blocks.as_slice() else { panic!("one block for the light, one for the dark") };
    let tones = ["open", "draining", "exclusive", "blocked", "away"];
    let grounds: Vec<String> = tones.iter().map(|tone| format!("{tone}-ground")).collect();
    let mut pairs = vec![
        ("ink", "paper"),
        ("ink", "card"),
        ("soft", "paper"),
        ("soft", "card"),
        ("exclusive", "card"),
        ("exclusive", "paper"),
    ];
    pairs.extend(tones.iter().copied().zip(grounds.iter().map(String::as_str)));
    for (scheme, colours) in [("light", light), ("dark", dark)] {
        for (text, ground) in &pairs {
            let contrast = contrast(colours[text], colours[ground]);
            assert!(contrast >= 4.5, "{scheme}: {text} on {ground} has {contrast:.2}");
        }
    }
}
