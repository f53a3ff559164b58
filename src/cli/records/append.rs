//! `records append`: rows in, batch by batch.
//!
//! One batch is handed over and awaited before the next, while the thread that reads gathers that one. So what is said
//! when it stops is simple: all before a batch is applied, and nothing of it and after it. Once an outcome cannot be
//! learnt in time nothing is waited for any more, for what is handed over is safe; the rest is handed over after it.

use std::path::Path;
use std::time::Duration;

use lockhouse::records::{Entry, KindName, Operation, Refusal, Schema};
use lockhouse::spool::NewBatch;
use lockhouse::{Error, Pending, Refused, StoreName};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::super::exit::Failure;
use super::super::{Context, output};
use super::args::AppendArgs;
use super::input::{By, Input, Piece, Rows};
use super::progress::Progress;
use super::result_of;
use super::tally::Tally;
use super::writing::{Builds, Writing};

/// The longest schema that is read from a file.
const LONGEST_SCHEMA: u64 = 1 << 20;

/// Adds the rows, and says what became of them.
pub(super) async fn append(context: &mut Context, args: AppendArgs) -> Result<i32, Failure> {
    // What cannot be read makes no store.
    let declared = args.schema.as_deref().map(declared).transpose()?;
    let kind = kind(&args, declared.as_ref())?;
    let input = Input::open(args.file.as_deref())?;
    let label = format!("records append {}", args.stream);
    let writing = Writing::open(context, Builds::labelled(label), args.patience.wait).await?;
    let mut appending = Appending {
        args: &args,
        kind: &kind,
        writing: &writing,
        json: context.global.json,
        progress: Progress::new(&context.console, input.length),
        tally: Tally::default(),
        wait: (!args.patience.no_wait).then_some(args.patience.wait),
        pending: None,
        next_step: None,
        under_way: None,
    };
    let console = context.console.clone();
    let told = |schema: &Schema| {
        let text = format!(
            "kind {kind} is new; the first rows show this schema, which the store keeps: {}",
            output::json_line(schema)
        );
        console.event("inferred", json!({"kind": kind, "definition": schema}), &text);
    };
    let result = tokio::select! {
        biased;
        signal = context.signals.interrupted() => Err(Failure::interrupted(signal)),
        result = appending.run(input, declared, told) => result,
    };
    let Appending { tally, pending, next_step, under_way, .. } = appending;
    let result = result.map_err(|failure| {
        let failure = match (failure, under_way) {
            (Failure::Interrupted { signal, .. }, Some(id)) => {
                let left = format!("a batch was under way: `lockhouse records await {id}` tells what became of it");
                Failure::Interrupted { signal, left: Some(left) }
            }
            (failure, _) => failure,
        };
        let note = [tally.so_far(), next_step].into_iter().flatten().collect::<Vec<_>>().join("; ");
        let done = tally.object(writing.name(), &args.stream, Some(&kind));
        if note.is_empty() { failure } else { Failure::After { failure: Box::new(failure), note, done } }
    });
    let store = writing.name().clone();
    writing.close(context).await;
    report(context, &args, &kind, &store, tally, pending, result)
}

fn report(
    context: &Context,
    args: &AppendArgs,
    kind: &KindName,
    store: &StoreName,
    tally: Tally,
    pending: Option<Pending>,
    result: Result<(), Failure>,
) -> Result<i32, Failure> {
    result?;
    if context.global.json {
        let object = tally.object(store, &args.stream, Some(kind));
        output::print(&format!("{}\n", output::json_line(&object)))?;
    } else if !args.patience.no_wait {
        output::print(&format!("{}\n", tally.text(&args.stream)))?;
    }
    match pending {
        None => Ok(0),
        Some(pending) => {
            let n = tally.pending.len();
            let note = format!("all rows are handed over and safe, {n} of their batches not known yet");
            let done: Value = tally.json();
            Err(Failure::After { failure: Box::new(Error::from(pending).into()), note, done })
        }
    }
}

struct Appending<'a> {
    args: &'a AppendArgs,
    kind: &'a KindName,
    writing: &'a Writing,
    json: bool,
    progress: Progress,
    tally: Tally,
    /// How long to wait for an outcome; `None`: not at all, or not any more.
    wait: Option<Duration>,
    /// The first outcome that was waited for in vain.
    pending: Option<Pending>,
    /// What to do about a bad row.
    next_step: Option<String>,
    /// The batch that is being handed over.
    under_way: Option<String>,
}

impl Appending<'_> {
    async fn run(&mut self, input: Input, declared: Option<Schema>, told: impl Fn(&Schema)) -> Result<(), Failure> {
        let mut schema = match declared {
            Some(schema) => Some(schema),
            None => self.stored().await?,
        };
        let by = match &schema {
            Some(schema) => By::Schema(schema.clone()),
            None => By::Shown { kind: self.kind.clone(), key: self.args.key.clone() },
        };
        let mut pieces: mpsc::Receiver<Piece> = input.start(by)?;
        loop {
            let piece = self.progress.during(pieces.recv()).await;
            match piece {
                Some(Piece::Schema(shown)) => {
                    told(&shown);
                    schema = Some(*shown);
                }
                Some(Piece::Rows(rows)) => self.rows(schema.as_ref(), rows, false).await?,
                Some(Piece::Last(rows)) => {
                    if !rows.rows.is_empty() {
                        self.rows(schema.as_ref(), rows, self.args.seal).await?;
                    } else if self.args.seal {
                        self.entry(None, Operation::Seal, &[]).await?;
                        self.tally.sealed = true;
                    }
                    return Ok(());
                }
                Some(Piece::Bad { refusal, from }) => {
                    let mut refusal = *refusal;
                    refusal.stream = Some(self.args.stream.clone());
                    self.next_step =
                        Some(format!("mend the row, or give a --schema that takes it, and append from line {from} on"));
                    return Err(self.refused(refusal));
                }
                Some(Piece::Broken(error)) => return Err(Failure::system("the rows cannot be read", error)),
                None => return Err(Failure::system("the rows cannot be read", std::io::ErrorKind::BrokenPipe.into())),
            }
        }
    }

    /// What the store has as the kind's schema.
    async fn stored(&self) -> Result<Option<Schema>, Failure> {
        let kinds = self.writing.store.kinds().await?;
        let Some(schema) = kinds.into_iter().find(|schema| schema.kind == *self.kind) else { return Ok(None) };
        if !self.args.key.is_empty() && self.args.key != schema.key {
            let message = format!(
                "kind {} has the key [{}] already, and --key says [{}]; leave --key out, or append under another kind",
                self.kind,
                schema.key.join(","),
                self.args.key.join(",")
            );
            return Err(Failure::Invalid { store: self.writing.name().clone(), message });
        }
        Ok(Some(schema))
    }

    async fn rows(&mut self, schema: Option<&Schema>, rows: Rows, seal: bool) -> Result<(), Failure> {
        let Rows { rows, lines, bytes } = rows;
        let count = rows.len();
        let operation = Operation::Append { kind: self.kind.clone(), rows, ttl: self.args.ttl, seal };
        self.entry(schema, operation, &lines).await?;
        self.tally.rows += count as u64;
        self.tally.sealed |= seal;
        self.progress.add(count, bytes);
        Ok(())
    }

    /// Hands over one entry, and notes what becomes of it.
    async fn entry(&mut self, schema: Option<&Schema>, operation: Operation, lines: &[u64]) -> Result<(), Failure> {
        let entry = Entry { stream: self.args.stream.clone(), generation: self.args.generation, operation };
        let batch = NewBatch::new(schema.into_iter().cloned().collect(), vec![entry]);
        let id = batch.id.clone();
        self.under_way = Some(id.clone());
        let delivered = self.progress.during(self.writing.deliver(batch, self.wait)).await?;
        self.under_way = None;
        self.tally.batches.push(id.clone());
        if self.args.patience.no_wait && !self.json && !output::print_while_read(&format!("{id}\n"))? {
            // Nobody reads the ids any more; the rows are meant all the same.
            tracing::debug!("nobody reads the ids");
        }
        match delivered {
            Ok(outcome) => {
                let applied =
                    result_of(self.writing.name(), &id, outcome).map_err(|failure| at_line(failure, lines))?;
                applied.iter().for_each(|applied| self.tally.add(applied));
            }
            Err(pending) => {
                self.tally.pending.push(id);
                if self.wait.take().is_some() {
                    self.pending = Some(pending);
                }
            }
        }
        Ok(())
    }

    fn refused(&self, refusal: Refusal) -> Failure {
        Error::from(Refused { store: self.writing.name().clone(), refusal }).into()
    }
}

/// A refusal counts the rows of an append; people count lines.
fn at_line(failure: Failure, lines: &[u64]) -> Failure {
    match failure {
        Failure::Store(Error::Refused(mut refused)) => {
            let nth = refused.refusal.row.and_then(|row| usize::try_from(row.checked_sub(1)?).ok());
            refused.refusal.row = nth.and_then(|nth| lines.get(nth)).copied();
            Failure::Store(Error::Refused(refused))
        }
        other => other,
    }
}

/// The kind that is meant.
fn kind(args: &AppendArgs, declared: Option<&Schema>) -> Result<KindName, Failure> {
    match (&args.kind, declared) {
        (Some(kind), Some(schema)) if *kind != schema.kind => {
            Err(Failure::Usage(format!("--kind says {kind}, and the schema is of kind {}; name one", schema.kind)))
        }
        (_, Some(schema)) => Ok(schema.kind.clone()),
        (Some(kind), None) => Ok(kind.clone()),
        (None, None) => Err(Failure::Usage("no kind is given: use --kind or --schema".to_owned())),
    }
}

/// The schema in a file.
fn declared(path: &Path) -> Result<Schema, Failure> {
    use std::io::Read as _;
    let bad = |why: String| Failure::Usage(format!("the schema {}: {why}", path.display()));
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(LONGEST_SCHEMA + 1).read_to_end(&mut text));
    read.map_err(|error| bad(error.to_string()))?;
    if text.len() as u64 > LONGEST_SCHEMA {
        return Err(bad(format!("it has more than {LONGEST_SCHEMA} bytes")));
    }
    let schema: Schema = serde_json::from_slice(&text).map_err(|error| {
        bad(format!(
            "{error}; it looks like {{\"kind\": \"order\", \"columns\": [{{\"name\": \"id\", \"type\": \"integer\"}}]}}"
        ))
    })?;
    schema.check().map_err(|refusal| bad(refusal.to_string()))?;
    Ok(schema)
}
