//! The tasks of a run as a list that is drawn again with each change, for people at a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use stockade_core::Time;

use crate::commands::print::escaped;
use crate::terminal::window_size;

/// The tasks of a run, in the order of their start.
#[derive(Default)]
pub(super) struct Live {
    rows: Vec<Row>,
    /// How many lines of the terminal the list has.
    drawn: usize,
}

struct Row {
    id: String,
    mark: char,
    attempt: u64,
    started_ms: i64,
    ended_ms: Option<i64>,
    /// The last line that the task wrote, or its error.
    last: String,
}

impl Live {
    /// A list for the terminal on standard error; `None` if there is none.
    pub(super) fn start() -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        (std::io::stderr().is_terminal() && !is_dumb).then(Self::default)
    }

    /// Handles an event. Returns whether the list shows it.
    pub(super) fn take(&mut self, event: &Value) -> bool {
        let at = event["at"].as_str().and_then(|at| at.parse::<Time>().ok());
        let at = at.map_or_else(now_ms, Time::as_ms);
        let text = |name: &str| event[name].as_str().unwrap_or_default();
        let message = || event["error"]["message"].as_str().unwrap_or_default().to_owned();
        let (mark, last) = match text("type") {
            "NodeStarted" => ('→', String::new()),
            "NodeFinished" if event["cacheHit"] == true => ('✓', "cached".to_owned()),
            "NodeFinished" => ('✓', String::new()),
            "NodeSkipped" => ('-', String::new()),
            "NodeCancelled" => ('-', "cancelled".to_owned()),
            "NodeFailed" => ('✗', message()),
            "NodeRetrying" => ('↻', message()),
            "NodeWaiting" => ('…', text("status").to_owned()),
            "TaskOutput" => {
                let last = text("text").lines().rfind(|line| !line.trim().is_empty());
                if let Some(last) = last {
                    self.row(&name(event), at).last = last.to_owned();
                }
                return true;
            }
            _ => return false,
        };
        let row = self.row(&name(event), at);
        row.mark = mark;
        if mark == '→' {
            row.attempt = event["attempt"].as_u64().unwrap_or(1);
            (row.started_ms, row.ended_ms) = (at, None);
        } else {
            row.ended_ms = Some(at);
        }
        if !last.is_empty() {
            row.last = last;
        }
        true
    }

    fn row(&mut self, id: &str, at: i64) -> &mut Row {
        let found = self.rows.iter().position(|row| row.id == id);
        let index = found.unwrap_or_else(|| {
            self.rows.push(Row {
                id: id.to_owned(),
                mark: '→',
                attempt: 1,
                started_ms: at,
                ended_ms: None,
                last: String::new(),
            });
            self.rows.len() - 1
        });
        &mut self.rows[index]
    }

    /// Removes the list from the terminal.
    pub(super) fn clear(&mut self) {
        if self.drawn > 0 {
            write(&format!("\x1b[{}A\x1b[J", self.drawn));
            self.drawn = 0;
        }
    }

    /// Draws the list anew.
    pub(super) fn draw(&mut self) {
        self.clear();
        let size = window_size();
        let (rows, columns) = (usize::from(size.rows), usize::from(size.columns));
        let lines = self.lines(rows.saturating_sub(2).max(1), columns.max(20), now_ms());
        self.drawn = lines.len();
        write(&lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    }

    /// At most `most` lines of the list, none wider than the terminal. The tasks that have ended first are
    /// only counted if there are too many.
    fn lines(&self, most: usize, columns: usize, now_ms: i64) -> Vec<String> {
        let mut shown: Vec<&Row> = self.rows.iter().collect();
        let mut hidden = 0;
        while shown.len() + usize::from(hidden > 0) > most && !shown.is_empty() {
            let first_ended = shown.iter().position(|row| "✓-".contains(row.mark));
            shown.remove(first_ended.unwrap_or(0));
            hidden += 1;
        }
        let mut lines = Vec::new();
        if hidden > 0 {
            lines.push(format!("  {hidden} more tasks"));
        }
        for row in shown {
            let seconds = row.ended_ms.unwrap_or(now_ms).saturating_sub(row.started_ms).max(0);
            let tenths = seconds / 100;
            let attempt = match row.attempt {
                0 | 1 => String::new(),
                attempt => format!(" (attempt {attempt})"),
            };
            let (id, last) = (escaped(&row.id), escaped(&row.last));
            let line =
                format!("{} {id}{attempt}  {}.{} s  {last}", row.mark, tenths / 10, tenths % 10);
            lines.push(line.trim_end().chars().take(columns - 1).collect());
        }
        lines
    }
}

/// The task of an event, with its iteration in loops.
fn name(event: &Value) -> String {
    let id = event["nodeId"].as_str().unwrap_or_default();
    match event["iteration"].as_u64() {
        Some(iteration) if iteration > 0 => format!("{id} #{iteration}"),
        _ => id.to_owned(),
    }
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

fn write(text: &str) {
    // Without a reader there is no list.
    drop(std::io::stderr().write_all(text.as_bytes()));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_task_has_a_line_with_its_state() {
        let mut live = Live::default();
        let mut event = |kind: &str, node: &str, at: &str, more: Value| {
            let mut event = json!({ "type": kind, "nodeId": node, "iteration": 0, "at": at });
            if let (Some(event), Some(more)) = (event.as_object_mut(), more.as_object()) {
                event.extend(more.clone());
            }
            live.take(&event)
        };
        assert!(!event("RunStarted", "", "2026-01-01T00:00:00Z", json!({})));
        assert!(event("NodeStarted", "a", "2026-01-01T00:00:00Z", json!({ "attempt": 1 })));
        let failed = json!({ "error": { "message": "no\x1b[2J" } });
        event("NodeRetrying", "a", "2026-01-01T00:00:01Z", failed);
        event("NodeStarted", "a", "2026-01-01T00:00:02Z", json!({ "attempt": 2 }));
        event("NodeFinished", "a", "2026-01-01T00:00:03.500Z", json!({}));
        event("NodeStarted", "b", "2026-01-01T00:00:04Z", json!({ "attempt": 1 }));
        event("TaskOutput", "b", "2026-01-01T00:00:05Z", json!({ "text": "one\ntwo\n\n" }));
        let start = live.rows[1].started_ms;
        let lines = live.lines(9, 80, start + 2_000);
        assert!(lines[0].starts_with("✓ a (attempt 2)  1.5 s"), "{lines:?}");
        assert!(!lines[0].contains('\x1b'), "{lines:?}");
        assert_eq!(lines[1], "→ b  2.0 s  two");
        assert_eq!(live.lines(1, 80, start).len(), 1);
        assert!(live.lines(9, 20, start).iter().all(|line| line.chars().count() < 20));
    }
}
