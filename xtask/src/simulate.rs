//! `cargo xtask simulate`: what 1, 10, 100 and 1000 servers ask of the database that they share, and how evenly
//! they get sandboxes, calculated from costs that `cargo xtask bench durable --postgres` has measured.

mod costs;
mod load;
mod placement;

use anyhow::Context as _;

use crate::arguments::SimulateOptions;
use costs::Costs;
use load::{Load, Plan};
use placement::Placed;

/// How many servers there are in each line of the table.
const SERVERS: [u32; 4] = [1, 10, 100, 1000];
/// The width of the curve, in characters.
const CURVE: f64 = 20.0;

/// Prints the tables.
pub(crate) fn run(options: &SimulateOptions) -> anyhow::Result<bool> {
    let costs = match &options.costs {
        None => Costs::kept()?,
        Some(file) => {
            let text = std::fs::read_to_string(file);
            let text = text.with_context(|| format!("read {}", file.display()))?;
            Costs::read(&text).with_context(|| format!("read {}", file.display()))?
        }
    };
    let plan = Plan {
        processors: options.processors.get(),
        sandboxes: options.sandboxes,
        operations_per_minute: options.operations,
        queued_share: f64::from(options.queued.min(100)) / 100.0,
    };
    print!("{}", table(&plan, &costs));
    Ok(true)
}

fn table(plan: &Plan, costs: &Costs) -> String {
    let mut text = format!(
        "Each server holds {} sandboxes with {} operations a minute each, {:.0} % of them through the queue. The \
         database has {} processors.\n\n\
         | servers | leases /s | queue polls /s | reads /s | operations /s | notifications sent /s | delivered /s | \
         connections | processors used | of the database | fullest server | fullest without counting |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        plan.sandboxes,
        plan.operations_per_minute,
        plan.queued_share * 100.0,
        plan.processors,
    );
    for servers in SERVERS {
        let load = Load::of(servers, plan, costs);
        let placed = Placed::simulate(servers, plan.sandboxes);
        let part = load.part(plan, costs);
        let curve = "#".repeat(characters(part));
        text.push_str(&format!(
            "| {servers} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} | {:.0} | {} | {:.2} | {:.1} % {curve} | {:.2} × | {:.2} × |\n",
            load.leases,
            load.polls,
            load.reads,
            load.operations,
            load.notifications,
            load.deliveries,
            load.connections,
            load.processors,
            part * 100.0,
            placed.counted,
            placed.random,
        ));
    }
    text.push_str(&match load::full_at(plan, costs) {
        Some((servers, limit)) => {
            format!("\nThe database is full at {servers} servers: {limit}.\n")
        }
        None => "\nThe database is not full with 100000 servers.\n".to_owned(),
    });
    text
}

/// The length of the curve for a part of the database.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between zero and the width of the curve"
)]
fn characters(part: f64) -> usize {
    (part * CURVE).ceil().clamp(0.0, CURVE) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_number_of_servers() {
        let plan =
            Plan { processors: 4, sandboxes: 20, operations_per_minute: 6, queued_share: 0.5 };
        let text = table(&plan, &Costs::kept().unwrap());
        for servers in SERVERS {
            assert!(text.contains(&format!("\n| {servers} | ")), "{text}");
        }
        assert!(text.contains("The database is full at "), "{text}");
    }

    #[test]
    fn the_curve_ends_where_the_database_is_full() {
        assert_eq!([0.0, 0.01, 0.5, 1.0, 7.0].map(characters), [0, 1, 10, 20, 20]);
    }
}
