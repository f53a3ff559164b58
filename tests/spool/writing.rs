//! Entries gathered to batches.

use lockhouse::owner::Ingestor;
use lockhouse::records::{Entry, Operation};
use lockhouse::spool::{Caps, NewBatch, NotTaken, Producer, Spool, Writer};

use crate::{Store, append, assert_clean, note, notes, rounds, schema, stream};

fn rows(batch: &NewBatch) -> Vec<usize> {
    let of = |entry: &Entry| match &entry.operation {
        Operation::Append { rows, .. } => rows.len(),
        _ => 0,
    };
    batch.entries.iter().map(of).collect()
}

#[test]
fn batches_are_cut_at_their_caps_and_hold_everything_in_order() {
    let store = Store::new();
    let producer = Producer::new(&store.spool, "");
    let publish = |batch: NewBatch| match producer.publish(&batch, "ndjson") {
        Ok(name) => Ok((name, rows(&batch))),
        Err(error) => Err(NotTaken::new(error, batch)),
    };
    let mut writer = Writer::with_caps(publish, Caps { rows: 10, bytes: 1 << 20 });
    let wanted: Vec<String> = (0..25).map(|n| format!("{n:02}")).collect();
    for text in &wanted {
        writer.row(&stream(), &schema(), note(text)).unwrap();
    }
    writer.entry(Some(&schema()), append(&["25", "26"])).unwrap();
    let done = writer.flush().unwrap();
    assert_eq!(done.iter().map(|(_, rows)| rows.clone()).collect::<Vec<_>>(), [vec![10], vec![10], vec![5, 2]]);
    assert_eq!(writer.flush().unwrap(), []);
    let mut target = store.target();
    assert_clean(&rounds(&mut Ingestor::new(&store.spool), &mut target));
    assert_eq!(notes(&target), wanted.into_iter().chain(["25".into(), "26".into()]).collect::<Vec<_>>());
}

fn cuts(caps: Caps, write: impl FnOnce(&mut dyn FnMut(usize))) -> Vec<Vec<usize>> {
    let mut writer = Writer::with_caps(|batch: NewBatch| Ok::<_, NotTaken>(rows(&batch)), caps);
    let text = "x".repeat(100);
    write(&mut |size| writer.row(&stream(), &schema(), note(&text[..size])).unwrap());
    writer.flush().unwrap()
}

#[test]
fn bytes_cut_as_well_as_rows_and_a_row_over_them_goes_alone() {
    let caps = Caps { rows: 1000, bytes: 250 };
    assert_eq!(cuts(caps, |row| (0..5).for_each(|_| row(100))), [[2], [2], [1]]);
    assert_eq!(cuts(Caps { bytes: 50, ..caps }, |row| (0..2).for_each(|_| row(100))), [[1], [1]]);
}

#[test]
fn another_schema_of_a_kind_and_a_full_manifest_begin_another_batch() {
    let mut writer = Writer::new(|batch: NewBatch| Ok::<_, NotTaken>(batch));
    let mut other = schema();
    other.columns[0].optional = true;
    writer.row(&stream(), &schema(), note("a")).unwrap();
    writer.row(&stream(), &other, note("b")).unwrap();
    let done = writer.flush().unwrap();
    assert_eq!(done.iter().map(|batch| &batch.schemas[0]).collect::<Vec<_>>(), [&schema(), &other]);
    // As many streams as a manifest has no room for: what is cut can be published.
    let store = Store::new();
    let producer = Producer::new(&store.spool, "");
    for n in 0..5000 {
        let seal = Entry { stream: format!("{n:0200}").parse().unwrap(), generation: None, operation: Operation::Seal };
        writer.entry(None, seal).unwrap();
    }
    let done = writer.flush().unwrap();
    assert!(done.len() > 1, "{}", done.len());
    for batch in &done {
        producer.publish(batch, "ndjson").unwrap();
    }
}

#[test]
fn what_was_not_taken_is_handed_over_again_under_the_same_id() {
    let mut refuse = true;
    let mut seen = Vec::new();
    let sink = |batch: NewBatch| {
        seen.push(batch.id.clone());
        if std::mem::take(&mut refuse) {
            let error = Spool::open("/no/such/directory/p").unwrap_err();
            return Err(NotTaken::new(error, batch));
        }
        Ok(rows(&batch))
    };
    let mut writer = Writer::with_caps(sink, Caps { rows: 2, bytes: 1000 });
    writer.row(&stream(), &schema(), note("a")).unwrap();
    writer.row(&stream(), &schema(), note("b")).unwrap();
    assert!(writer.row(&stream(), &schema(), note("c")).is_err());
    writer.row(&stream(), &schema(), note("c")).unwrap();
    assert_eq!(writer.flush().unwrap(), [[2], [1]]);
    drop(writer);
    assert_eq!((seen.len(), &seen[0]), (3, &seen[1]));
}
