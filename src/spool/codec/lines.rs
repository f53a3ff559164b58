//! `ndjson`: a row a line. `ndjson.gz`: the same, packed.

use std::io::{self, BufRead, BufReader, Read, Write};

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::{Budget, Format, TakeRow};

/// One JSON object a line.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ndjson;

/// One JSON object a line, packed by gzip.
#[derive(Debug, Clone, Copy, Default)]
pub struct NdjsonGz;

impl Format for Ndjson {
    fn name(&self) -> &str {
        "ndjson"
    }

    fn encode(&self, rows: &mut dyn Iterator<Item = Vec<u8>>, to: &mut dyn Write) -> io::Result<()> {
        for mut row in rows {
            row.push(b'\n');
            to.write_all(&row)?;
        }
        Ok(())
    }

    fn decode(&self, from: &mut dyn BufRead, budget: &mut Budget, row: TakeRow<'_>) -> io::Result<()> {
        lines(from, budget, row)
    }
}

impl Format for NdjsonGz {
    fn name(&self) -> &str {
        "ndjson.gz"
    }

    fn encode(&self, rows: &mut dyn Iterator<Item = Vec<u8>>, to: &mut dyn Write) -> io::Result<()> {
        // It is read once and thrown away: what the disk takes is saved, not every last byte.
        let mut packed = GzEncoder::new(to, Compression::fast());
        Ndjson.encode(rows, &mut packed)?;
        packed.finish().map(drop)
    }

    fn decode(&self, from: &mut dyn BufRead, budget: &mut Budget, row: TakeRow<'_>) -> io::Result<()> {
        lines(&mut BufReader::new(MultiGzDecoder::new(from)), budget, row)
    }
}

fn lines(from: &mut dyn BufRead, budget: &mut Budget, row: TakeRow<'_>) -> io::Result<()> {
    let mut line = Vec::new();
    let longest = u64::try_from(budget.row()).unwrap_or(u64::MAX).saturating_add(1);
    loop {
        line.clear();
        let read = (&mut *from).take(longest).read_until(b'\n', &mut line)?;
        budget.spend(read)?;
        match line.pop_if(|last| *last == b'\n') {
            None if read == 0 => return Ok(()),
            _ if line.len() > budget.row() => {
                let message = format!("a row has more than {} bytes", budget.row());
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            _ => row(&line)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Formats;
    use super::*;

    fn read(format: &str, bytes: &[u8], row: usize, unpacked: u64) -> Result<Vec<String>, String> {
        let mut rows = Vec::new();
        let mut budget = Budget::new(row, unpacked);
        let formats = Formats::default();
        let read = formats.get(format).unwrap().decode(&mut &*bytes, &mut budget, &mut |row| {
            rows.push(String::from_utf8(row.to_owned()).unwrap());
            Ok(())
        });
        read.map(|()| rows).map_err(|error| error.to_string())
    }

    fn written(format: &str, rows: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut rows = rows.iter().map(|row| row.as_bytes().to_vec());
        Formats::default().get(format).unwrap().encode(&mut rows, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn rows_are_read_as_they_are_written() {
        for format in ["ndjson", "ndjson.gz"] {
            for rows in [&[][..], &["{}"], &["{\"a\":1}", "{\"b\":\"ü\"}"]] {
                assert_eq!(read(format, &written(format, rows), 100, 100).unwrap(), rows, "{format}");
            }
        }
        assert_eq!(read("ndjson", b"{}\n{}", 100, 100).unwrap(), ["{}", "{}"]);
    }

    #[test]
    fn no_file_makes_a_reader_hold_or_unpack_more_than_it_may() {
        for format in ["ndjson", "ndjson.gz"] {
            let bytes = written(format, &["{\"a\":1}", "{\"a\":1}"]);
            assert!(read(format, &bytes, 6, 100).unwrap_err().contains("more than 6 bytes"), "{format}");
            assert_eq!(read(format, &bytes, 7, 16).unwrap().len(), 2, "{format}");
            assert!(read(format, &bytes, 7, 15).unwrap_err().contains("too much"), "{format}");
        }
    }

    #[test]
    fn what_is_damaged_is_said_to_be() {
        let whole = written("ndjson.gz", &["{}"]);
        for damaged in [&whole[..whole.len() - 1], &[&whole[..], b"x"].concat(), b"{}\n"] {
            assert!(read("ndjson.gz", damaged, 100, 100).is_err(), "{damaged:?}");
        }
        let twice = [&whole[..], &whole[..]].concat();
        assert_eq!(read("ndjson.gz", &twice, 100, 100).unwrap().len(), 2);
    }
}
