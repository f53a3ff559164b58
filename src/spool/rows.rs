//! Rows as JSON, and back.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::limits::Limits;
use crate::records::{Cell, ColumnType, Row, Schema};

pub(crate) fn to_json(schema: &Schema, row: &Row) -> String {
    let mut json = String::from("{");
    for (column, cell) in schema.columns.iter().zip(row.cells()) {
        let value = match cell {
            Cell::Null => continue,
            Cell::Text(text) => Value::from(text.as_str()).to_string(),
            Cell::Integer(integer) => integer.to_string(),
            Cell::Real(real) => Value::from(*real).to_string(),
            Cell::Boolean(boolean) => boolean.to_string(),
            Cell::Json(json) => json.clone(),
        };
        if json.len() > 1 {
            json.push(',');
        }
        json.push_str(&Value::from(column.name.as_str()).to_string());
        json.push(':');
        json.push_str(&value);
    }
    json.push('}');
    json
}

pub(crate) fn from_json(schema: &Schema, json: &[u8]) -> Result<Row, String> {
    let mut fields: Map<String, Value> = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let mut cells = Vec::new();
    for column in &schema.columns {
        let value = fields.remove(&column.name).unwrap_or(Value::Null);
        cells.push(match (column.holds, value) {
            (_, Value::Null) => Cell::Null,
            (ColumnType::Text, Value::String(text)) => Cell::Text(text),
            (ColumnType::Integer, Value::Number(n)) => Cell::Integer(n.as_i64().ok_or("no integer")?),
            (ColumnType::Real, Value::Number(n)) => Cell::Real(n.as_f64().ok_or("no real")?),
            (ColumnType::Boolean, Value::Bool(b)) => Cell::Boolean(b),
            (ColumnType::Json, value) => {
                Cell::Json(RawValue::from_string(value.to_string()).map_err(|e| e.to_string())?.get().to_owned())
            }
            _ => return Err("wrong type".to_owned()),
        });
    }
    match fields.keys().next() {
        None => Ok(Row(cells)),
        Some(unknown) => Err(format!("no column {unknown}")),
    }
}

/// Why the JSON of a row is more than a row may be, if it is.
pub(crate) fn too_large(json: &[u8], limits: &Limits) -> Option<String> {
    if json.len() > limits.row {
        return Some(format!("it has {} bytes of JSON, and may have {}", json.len(), limits.row));
    }
    (depth(json) > limits.depth).then(|| format!("it nests more than {} deep", limits.depth))
}

/// How deep arrays and objects nest.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::super::limits::LIMITS;
    use super::*;

    #[test]
    fn how_deep_a_row_nests_is_counted_outside_of_strings() {
        assert_eq!(depth(br#"{"a":[1,{"b":"[[[\"[["},[]]}"#), 3);
        let nested = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n - 1), "]".repeat(n - 1));
        assert_eq!(too_large(nested(64).as_bytes(), &LIMITS), None);
        assert!(too_large(nested(65).as_bytes(), &LIMITS).is_some_and(|why| why.contains("64")));
        assert!(too_large(&[b' '; 10], &Limits { row: 9, ..LIMITS }).is_some_and(|why| why.contains("10 bytes")));
    }
}
