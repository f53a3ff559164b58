//! Makes a page of what the other benchmarks measured: `report.md` with a table of ratios, and a plot for each series.
//!
//! `scripts/bench` runs all of them and then this, with the directory of their results.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use plotters::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Row {
    section: String,
    peer: String,
    name: String,
    p50_ns: Option<u64>,
    p99_ns: Option<u64>,
    peer_p50_ns: Option<u64>,
    ratio: Option<f64>,
    aim: String,
    reached: Option<bool>,
    limited_by: String,
    samples: usize,
}

#[derive(Deserialize)]
struct Series {
    plot: String,
    name: String,
    points: Vec<(f64, f64)>,
}

/// How a plot is drawn.
struct Plot {
    name: &'static str,
    file: &'static str,
    title: &'static str,
    x: &'static str,
    y: &'static str,
    logarithmic: bool,
}

const PLOTS: [Plot; 4] = [
    Plot {
        name: "drain hand-over",
        file: "hand-over.svg",
        title: "From the last writer's going to the fsck's grant",
        x: "of a hundred drains",
        y: "ms at most",
        logarithmic: false,
    },
    Plot {
        name: "leases of one process",
        file: "leases.svg",
        title: "Refreshing all leases of one process",
        x: "leases",
        y: "ms",
        logarithmic: true,
    },
    Plot {
        name: "drain look",
        file: "drain-look.svg",
        title: "One look of a drain",
        x: "writers in the collection",
        y: "ms",
        logarithmic: true,
    },
    Plot {
        name: "gate",
        file: "gate.svg",
        title: "Entering and leaving an open gate",
        x: "threads",
        y: "ns",
        logarithmic: false,
    },
];

fn main() {
    // Run with the others, without results, it has nothing to do.
    let Some(directory) = std::env::var_os("LOCKHOUSE_BENCH_OUT") else { return };
    let directory = Path::new(&directory);
    let rows: Vec<Row> = lines(&directory.join("rows.ndjson"));
    let series: Vec<Series> = lines(&directory.join("series.ndjson"));
    let machine = std::env::var("LOCKHOUSE_BENCH_MACHINE").unwrap_or_default();
    let mut page = format!(
        "# What lockhouse costs\n\nMeasured in one run by `scripts/bench`{}{machine}. Each row beside a peer takes turns with it,\n\
         sample by sample; the ratio is that of the medians, ours to the peer's. What limits a row is said beside it.\n",
        if machine.is_empty() { "" } else { ": " }
    );
    let mut sections: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in &rows {
        match sections.last_mut() {
            Some((name, rows)) if *name == row.section => rows.push(row),
            _ => sections.push((row.section.clone(), vec![row])),
        }
    }
    for (section, rows) in sections {
        table(&mut page, &section, &rows);
    }
    page.push_str("\n## Plots\n");
    let mut plots: BTreeMap<&str, Vec<&Series>> = BTreeMap::new();
    for line in &series {
        plots.entry(&line.plot).or_default().push(line);
    }
    for plot in PLOTS {
        let Some(lines) = plots.get(plot.name) else { continue };
        draw(&directory.join(plot.file), &plot, lines).expect("a plot");
        let _ = write!(page, "\n### {}\n\n![{}]({})\n", plot.title, plot.title, plot.file);
        for line in lines {
            if let Some(growth) = growth(&line.points, plot.logarithmic) {
                let _ = write!(page, "\n{}: {growth}.\n", line.name);
            }
        }
    }
    std::fs::write(directory.join("report.md"), page).expect("a page");
}

fn lines<T: for<'de> Deserialize<'de>>(path: &Path) -> Vec<T> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a line of results")).collect()
}

fn table(page: &mut String, section: &str, rows: &[&Row]) {
    let peer = &rows[0].peer;
    let _ = write!(page, "\n## {section}\n\n| | p50 | p99 | {peer}, p50 | ratio | aim | limited by |\n");
    page.push_str("| --- | ---: | ---: | ---: | ---: | --- | --- |\n");
    for row in rows {
        let aim = match row.reached {
            Some(true) => format!("{}: reached", row.aim),
            Some(false) => format!("{}: **missed**", row.aim),
            None => String::new(),
        };
        let ratio = row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let _ = writeln!(
            page,
            "| {} ({}) | {} | {} | {} | {ratio} | {aim} | {} |",
            row.name,
            row.samples,
            time(row.p50_ns),
            time(row.p99_ns),
            time(row.peer_p50_ns),
            row.limited_by
        );
    }
}

fn time(nanos: Option<u64>) -> String {
    let Some(nanos) = nanos else { return String::new() };
    let seconds = Duration::from_nanos(nanos).as_secs_f64();
    match nanos {
        ..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} µs", seconds * 1e6),
        1_000_000..1_000_000_000 => format!("{:.2} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

/// How much more the last step of a series costs for ten times as many.
fn growth(points: &[(f64, f64)], logarithmic: bool) -> Option<String> {
    let [.., (few, less), (many, more)] = points else { return None };
    (logarithmic && *less > 0.0)
        .then(|| format!("{:.0} times as many cost {:.1} times as much at the end", many / few, more / less))
}

fn draw(path: &Path, plot: &Plot, lines: &[&Series]) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, (720, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let all = || lines.iter().flat_map(|line| &line.points);
    let (least, most) = all().fold((f64::MAX, 0.0_f64), |(least, most), (x, _)| (least.min(*x), most.max(*x)));
    let (low, high) = all().fold((f64::MAX, 0.0_f64), |(low, high), (_, y)| (low.min(*y), high.max(*y)));
    let mut builder = ChartBuilder::on(&root);
    builder.caption(plot.title, ("sans-serif", 20)).margin(16).x_label_area_size(42).y_label_area_size(64);
    macro_rules! chart {
        ($x:expr, $y:expr) => {{
            let mut chart = builder.build_cartesian_2d($x, $y)?;
            chart.configure_mesh().x_desc(plot.x).y_desc(plot.y).light_line_style(WHITE).draw()?;
            for (index, line) in lines.iter().enumerate() {
                let color = Palette99::pick(index).to_rgba();
                chart
                    .draw_series(LineSeries::new(line.points.iter().copied(), color.stroke_width(2)))?
                    .label(&line.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
                chart.draw_series(line.points.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.85))
                .border_style(BLACK.mix(0.3))
                .draw()?;
        }};
    }
    if plot.logarithmic {
        chart!((least..most * 1.1).log_scale(), (low * 0.7..high * 1.5).log_scale());
    } else {
        chart!(least..most, 0.0..high * 1.25);
    }
    root.present()?;
    Ok(())
}
