//! Rows there and back, and what is no row.

use super::*;
use crate::records::{
    KindName,
    RefusalKind::{DoesNotFit, MissingColumn, NotARow, TooLarge, UnknownColumn, WrongType},
};

fn schema(columns: &[(&str, ColumnType)]) -> Schema {
    let columns =
        columns.iter().map(|&(name, holds)| Column { name: name.to_owned(), holds, optional: true }).collect();
    let kind: KindName = "k".parse().unwrap();
    Schema { kind, columns, key: Vec::new(), on_conflict: Default::default(), retention: Default::default() }
}

fn all() -> Schema {
    use ColumnType::*;
    schema(&[("t", Text), ("i", Integer), ("r", Real), ("b", Boolean), ("j", Json)])
}

fn refused(json: &str) -> (RefusalKind, Option<String>) {
    let refusal = all().row(json.as_bytes()).unwrap_err();
    assert!(refusal.message.len() < 300 && refusal.of.is_some(), "{refusal}");
    (refusal.kind, refusal.column)
}

fn there_and_back(schema: &Schema, row: &Row) {
    let mut written = Vec::new();
    schema.write(row, &mut written);
    let again = schema.row(&written).unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(&written)));
    for (a, b) in row.0.iter().zip(&again.0) {
        match (a, b) {
            (Cell::Real(a), Cell::Real(b)) => assert_eq!(a.to_bits(), b.to_bits(), "{a} {b}"),
            _ => assert_eq!(a, b),
        }
    }
    assert_eq!(row.0.len(), again.0.len());
    let mut twice = Vec::new();
    schema.write(&again, &mut twice);
    assert_eq!(written, twice);
}

#[test]
fn rows_are_written_in_the_order_of_columns_without_nulls() {
    let row = all().row(br#" { "j": [ 1 , {"x": null} ], "i": -7, "r": 1.0, "t": "\u00e4\n", "b": null } "#).unwrap();
    let mut written = Vec::new();
    all().write(&row, &mut written);
    assert_eq!(String::from_utf8(written).unwrap(), r#"{"t":"ä\n","i":-7,"r":1.0,"j":[1,{"x":null}]}"#);
    there_and_back(&all(), &row);
}

#[test]
fn every_number_and_every_text_survives() {
    let mut chance = fastrand::Rng::with_seed(7);
    let mut kept = 0;
    for _ in 0..20_000 {
        let real = f64::from_bits(chance.u64(..));
        let text: String = (0..chance.usize(..9)).map(|_| chance.char(..)).collect();
        let json = format!(r#"{{"a":[{}, {}],"":"x"}}"#, chance.i64(..), chance.u64(..));
        let cells = vec![
            if chance.bool() { Cell::Text(text) } else { Cell::Null },
            Cell::Integer(chance.i64(..) >> chance.u32(..63)),
            if real.is_finite() && real != 0.0 { Cell::Real(real) } else { Cell::Null },
            if chance.bool() { Cell::Boolean(chance.bool()) } else { Cell::Null },
            if chance.bool() { Cell::Json(nested::compact(&json).unwrap()) } else { Cell::Null },
        ];
        kept += cells.iter().filter(|cell| **cell != Cell::Null).count();
        there_and_back(&all(), &Row(cells));
    }
    assert!(kept > 50_000, "{kept}");
    for real in [f64::MIN_POSITIVE, 5e-324, f64::MAX, f64::MIN, f64::EPSILON, 9007199254740993.0, 1e22, 0.1 + 0.2] {
        there_and_back(&schema(&[("r", ColumnType::Real)]), &Row(vec![Cell::Real(real)]));
    }
    for number in [i64::MIN, i64::MAX, 0, (1 << 53) + 1] {
        there_and_back(&schema(&[("i", ColumnType::Integer)]), &Row(vec![Cell::Integer(number)]));
    }
}

#[test]
fn numbers_are_exact_or_refused() {
    let cell = |json: &str| all().row(json.as_bytes()).unwrap().0;
    assert_eq!(cell(r#"{"i":-0}"#)[1], Cell::Integer(0));
    assert_eq!(cell(r#"{"i":-9223372036854775808}"#)[1], Cell::Integer(i64::MIN));
    for (json, bits) in [("-0", 0), ("-0.0", 0), ("-1e-400", 0), ("1e3", 1000f64.to_bits()), ("5e-324", 1)] {
        let Cell::Real(real) = cell(&format!(r#"{{"r":{json}}}"#))[2] else { panic!("{json}") };
        assert_eq!(real.to_bits(), bits, "{json}");
    }
    assert_eq!(cell(r#"{"r":9007199254740992}"#)[2], Cell::Real(9007199254740992.0));
    let column = |name: &str| Some(name.to_owned());
    for json in ["1e3", "1000.0", "1.5", "-0.0"] {
        assert_eq!(refused(&format!(r#"{{"i":{json}}}"#)), (WrongType, column("i")), "{json}");
    }
    for json in ["9223372036854775808", "-9223372036854775809", &"9".repeat(40_000)] {
        assert_eq!(refused(&format!(r#"{{"i":{json}}}"#)), (DoesNotFit, column("i")));
    }
    for json in ["9007199254740993", "1e400", "-1e400", &i128::MAX.to_string(), &"9".repeat(400)] {
        assert_eq!(refused(&format!(r#"{{"r":{json}}}"#)), (DoesNotFit, column("r")), "{json}");
    }
}

#[test]
fn what_is_no_row_is_refused() {
    for json in ["", "null", "[]", "7", "{", r#"{"i":1}{"#, r#"{"i":1,}"#, r#"{"i":01}"#, "{'i':1}", r#"{"i":NaN}"#] {
        assert_eq!(refused(json), (NotARow, None), "{json}");
    }
    assert_eq!(all().row(b"{\"t\":\"\xff\"}").unwrap_err().kind, NotARow);
    assert_eq!(refused(&format!("{:?}", "x".repeat(100_000))), (NotARow, None));
    let column = |name: &str| Some(name.to_owned());
    assert_eq!(refused(r#"{"i":1,"\u0069":2}"#), (NotARow, column("i")));
    assert_eq!(refused(r#"{"i":null,"i":2}"#), (NotARow, column("i")));
    assert_eq!(refused(r#"{"t":"\ud800"}"#), (NotARow, column("t")));
    assert_eq!(refused(r#"{"x":null}"#), (UnknownColumn, column("x")));
    for json in [r#"{"t":7}"#, r#"{"t":{}}"#] {
        assert_eq!(refused(json), (WrongType, column("t")), "{json}");
    }
    for json in [r#"{"b":1}"#, r#"{"b":"true"}"#] {
        assert_eq!(refused(json), (WrongType, column("b")), "{json}");
    }
    assert_eq!(refused(r#"{"i":"7"}"#), (WrongType, column("i")));
    let mut strict = all();
    strict.columns[0].optional = false;
    for json in ["{}", r#"{"t":null}"#] {
        let refusal = strict.row(json.as_bytes()).unwrap_err();
        assert_eq!((refusal.kind, refusal.column.as_deref()), (MissingColumn, Some("t")));
    }
}

#[test]
fn rows_have_a_greatest_length_that_they_keep() {
    let row = |text: usize| format!(r#"{{"t":"{}"}}"#, "x".repeat(text));
    let fits = LONGEST_ROW - row(0).len();
    there_and_back(&all(), &all().row(row(fits).as_bytes()).unwrap());
    assert_eq!(refused(&row(fits + 1)).0, TooLarge);
    // `1e3` is written as `1000.0`, which makes it too long.
    let grows = format!(r#"{{"r":1e3,{}"#, &row(fits - r#""r":1e3,"#.len())[1..]);
    assert_eq!(grows.len(), LONGEST_ROW);
    assert_eq!(refused(&grows).0, TooLarge);
}

#[test]
fn the_short_way_comes_to_what_the_long_one_does() {
    use ColumnType::*;
    let mut schema = schema(&[("t", Text), ("i", Integer), ("r", Real), ("b", Boolean), ("q\"\\", Text)]);
    schema.columns[1].optional = false;
    let bits = |row: &Row| row.0.iter().map(|cell| format!("{cell:?}")).collect::<Vec<_>>();
    let mut chance = fastrand::Rng::with_seed(11);
    let (mut short, mut refused) = (0, 0);
    for turn in 0..40_000 {
        let mut cells = vec![
            Cell::Text(["", "x", "the item", "ü\u{7f}", "a\"b", "c\\", "\n"][chance.usize(..7)].to_owned()),
            Cell::Integer(chance.i64(..) >> chance.u32(..64)),
            Cell::Real([0.0, 1.0, -0.125, 1e300, 5e-324, 1e22, 0.1][chance.usize(..7)]),
            Cell::Boolean(chance.bool()),
            Cell::Text("q".to_owned()),
        ];
        for place in [0, 2, 3, 4] {
            if chance.u8(..4) == 0 || (place == 4 && turn % 2 == 0) {
                cells[place] = Cell::Null;
            }
        }
        let row = Row(cells);
        let mut json = Vec::new();
        schema.write(&row, &mut json);
        if let Some(read) = quick::row(&schema, &json) {
            assert_eq!(bits(&read), bits(&row));
            short += 1;
        }
        for _ in 0..chance.usize(..3) {
            let (at, byte) = (chance.usize(..json.len()), b"\"{}[],:\\ -+.eE0123456789tfnx\xc3\n"[chance.usize(..30)]);
            match chance.u8(..3) {
                0 => json[at] = byte,
                1 => json.insert(at, byte),
                _ => drop(json.remove(at)),
            }
        }
        let long = schema.any_row(&json);
        refused += usize::from(long.is_err());
        if let Some(read) = quick::row(&schema, &json) {
            let long = long.unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(&json)));
            assert_eq!(bits(&read), bits(&long), "{}", String::from_utf8_lossy(&json));
        }
    }
    assert!(short > 6_000 && refused > 6_000, "{short} {refused}");
}
