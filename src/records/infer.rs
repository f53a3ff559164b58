//! A schema from the first rows that come, for those who have not written one down.

use std::collections::HashMap;

use super::json::{Shape, shape};
use super::name::KindName;
use super::object::{self, Members};
use super::refusal::{Refusal, RefusalKind};
use super::schema::{Column, ColumnType, Conflict, Retention, Schema};

impl Schema {
    /// A schema that takes these rows: their columns in the order in which they first come, each of the narrowest type
    /// that holds all its values.
    ///
    /// A few rows cannot show that each has to have a column, so that every column is optional; nor can they show
    /// a key, which [`Schema::with_key`] adds. A column of nulls is JSON, and so is one of mixed types.
    ///
    /// # Errors
    ///
    /// `NotARow` naming the kind and the row, from 1; `BadSchema` if the names cannot be columns, or there is none.
    pub fn infer<'r>(kind: &KindName, rows: impl IntoIterator<Item = &'r [u8]>) -> Result<Schema, Refusal> {
        let mut guess = Guess::default();
        for json in rows {
            guess.row += 1;
            object::read(json, &mut guess).map_err(|refusal| refusal.of_kind(kind).at_row(guess.row))?;
        }
        let columns = guess.columns.into_iter().map(|(name, seen)| Column {
            name,
            holds: seen.holds.unwrap_or(ColumnType::Json),
            optional: true,
        });
        let schema = Schema {
            kind: kind.clone(),
            columns: columns.collect(),
            key: Vec::new(),
            on_conflict: Conflict::default(),
            retention: Retention::default(),
        };
        schema.check()?;
        Ok(schema)
    }

    /// The same with a key, whose columns have to have a value from now on.
    ///
    /// # Errors
    ///
    /// `BadSchema` as [`Schema::check`].
    pub fn with_key(mut self, key: Vec<String>) -> Result<Schema, Refusal> {
        for column in &mut self.columns {
            column.optional &= !key.contains(&column.name);
        }
        self.key = key;
        self.check()?;
        Ok(self)
    }
}

#[derive(Default)]
struct Guess {
    row: u64,
    columns: Vec<(String, Seen)>,
    places: HashMap<String, usize>,
}

#[derive(Default)]
struct Seen {
    holds: Option<ColumnType>,
    /// A whole number came that no real column can hold.
    long: bool,
    in_row: u64,
}

impl Members for Guess {
    fn name(&mut self, name: &str) -> Result<usize, Refusal> {
        let place = match self.places.get(name) {
            Some(&place) => place,
            None => {
                self.places.insert(name.to_owned(), self.columns.len());
                self.columns.push((name.to_owned(), Seen::default()));
                self.columns.len() - 1
            }
        };
        if std::mem::replace(&mut self.columns[place].1.in_row, self.row) == self.row {
            return Err(Refusal::new(RefusalKind::NotARow, "it is named twice").at_column(name));
        }
        Ok(place)
    }

    fn value(&mut self, place: usize, json: &str) -> Result<(), Refusal> {
        let found = match shape(json) {
            Shape::Null => return Ok(()),
            Shape::Boolean => ColumnType::Boolean,
            Shape::Text => ColumnType::Text,
            Shape::Whole if json.parse::<i64>().is_ok() => ColumnType::Integer,
            // A number that neither type holds exactly stays as it is written.
            Shape::Whole | Shape::Fraction if super::json::real(json).is_ok() => ColumnType::Real,
            Shape::Whole | Shape::Fraction | Shape::Container => ColumnType::Json,
        };
        let seen = &mut self.columns[place].1;
        seen.long |= found == ColumnType::Integer && super::json::real(json).is_err();
        seen.holds = Some(match (seen.holds, found) {
            (None, found) => found,
            (Some(known), found) if known == found => known,
            (Some(ColumnType::Integer), ColumnType::Real) | (Some(ColumnType::Real), ColumnType::Integer)
                if !seen.long =>
            {
                ColumnType::Real
            }
            (Some(_), _) => ColumnType::Json,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_takes_the_rows_that_it_was_made_of() {
        let rows: [&[u8]; 3] = [
            br#"{"i":1,"mixed":1,"real":1,"long":9007199254740993,"none":null}"#,
            br#"{"t":"x","i":-2,"mixed":"1","real":0.5,"long":0.5}"#,
            br#"{"b":true,"j":{"x":1},"huge":123456789012345678901234567890}"#,
        ];
        let kind: KindName = "k".parse().unwrap();
        let schema = Schema::infer(&kind, rows).unwrap();
        let columns: Vec<_> = schema.columns.iter().map(|column| (column.name.as_str(), column.holds)).collect();
        use ColumnType::*;
        let expected = [
            ("i", Integer),
            ("mixed", Json),
            ("real", Real),
            ("long", Json),
            ("none", Json),
            ("t", Text),
            ("b", Boolean),
            ("j", Json),
            ("huge", Json),
        ];
        assert_eq!(columns, expected);
        for row in rows {
            schema.row(row).unwrap();
        }
        let keyed = schema.with_key(vec!["i".to_owned()]).unwrap();
        assert_eq!(keyed.row(rows[2]).unwrap_err().kind, RefusalKind::MissingColumn);
    }

    #[test]
    fn rows_that_cannot_be_columns_are_named() {
        let kind: KindName = "k".parse().unwrap();
        let refused = |rows: &[&str]| Schema::infer(&kind, rows.iter().map(|row| row.as_bytes())).unwrap_err();
        assert_eq!(refused(&[r#"{"a":1}"#, "[]"]).row, Some(2));
        assert_eq!(refused(&[r#"{"a":1,"a":2}"#]).column.as_deref(), Some("a"));
        assert_eq!(refused(&[r#"{"a":1,"A":2}"#]).kind, RefusalKind::BadSchema);
        assert_eq!(refused(&[]).kind, RefusalKind::BadSchema);
    }
}
