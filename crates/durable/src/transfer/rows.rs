//! Reads the rows of a table in pages, writes them, and hashes them.

use sha2::{Digest as _, Sha256};

use super::tables::{Order, Table, quoted};
use crate::{Result, Row, Statement, Store, Value};

/// How many rows are read and written at once.
const PAGE: usize = 200;

/// The rows of a table, read in pages.
#[derive(Debug)]
pub(super) struct Pages<'t> {
    table: &'t Table,
    order: Order,
    /// The values of the ordering columns in the last row that was read.
    last: Option<Vec<Value>>,
    has_ended: bool,
}

impl<'t> Pages<'t> {
    pub(super) fn new(table: &'t Table, order: Order) -> Self {
        Self { table, order, last: None, has_ended: false }
    }

    /// The next rows, each with the values of `table.columns`.
    pub(super) async fn next(&mut self, store: &dyn Store) -> Result<Option<Vec<Vec<Value>>>> {
        if self.has_ended {
            return Ok(None);
        }
        let found = store.query(self.statement()).await?;
        self.has_ended = found.len() < PAGE;
        let columns = self.table.columns.len();
        let mut rows = Vec::with_capacity(found.len());
        let mut last = None;
        for row in &found {
            rows.push(values(row, columns)?);
            last = Some(row);
        }
        let Some((row, values)) = last.zip(rows.last()) else { return Ok(None) };
        self.last = Some(match self.table.age(self.order) {
            Some(_) => vec![row.get(columns)?.clone()],
            None => self.table.key.iter().map(|column| values[*column].clone()).collect(),
        });
        Ok(Some(rows))
    }

    fn statement(&self) -> Statement {
        let parameters = self.last.clone().unwrap_or_default();
        match self.table.age(self.order) {
            None => Statement::new(self.sql(&self.key(), None), parameters),
            Some([sqlite, postgres]) => {
                let sql = |column: &String| self.sql(std::slice::from_ref(column), Some(column));
                Statement::new(sql(&sqlite), parameters).on_postgres(sql(&postgres))
            }
        }
    }

    fn key(&self) -> Vec<String> {
        self.table.key.iter().map(|column| quoted(&self.table.columns[*column])).collect()
    }

    /// The text of a query in the order of these columns, the first of which may be read, too.
    fn sql(&self, order: &[String], read: Option<&String>) -> String {
        let columns = self.table.columns.iter().map(|column| quoted(column));
        let columns: Vec<_> = columns.chain(read.cloned()).collect();
        let order = order.join(", ");
        let after = match self.last.as_ref().map(Vec::len) {
            None => String::new(),
            Some(count) => format!(" WHERE ({order}) > ({})", parameters(count)),
        };
        format!(
            "SELECT {} FROM {}{after} ORDER BY {order} LIMIT {PAGE}",
            columns.join(", "),
            self.table.quoted()
        )
    }
}

/// Adds one row.
pub(super) fn insert(table: &Table, row: Vec<Value>) -> Statement {
    let columns: Vec<_> = table.columns.iter().map(|column| quoted(column)).collect();
    let into = format!("INSERT INTO {} ({})", table.quoted(), columns.join(", "));
    let values = format!("VALUES ({})", parameters(columns.len()));
    // The numbers that PostgreSQL gives otherwise are copied, too.
    let postgres = format!("{into} OVERRIDING SYSTEM VALUE {values}");
    Statement::new(format!("{into} {values}"), row).on_postgres(postgres).expecting(1)
}

fn parameters(count: usize) -> String {
    (1..=count).map(|number| format!("?{number}")).collect::<Vec<_>>().join(", ")
}

fn values(row: &Row, columns: usize) -> Result<Vec<Value>> {
    (0..columns).map(|column| row.get(column).cloned()).collect()
}

/// The hash of the rows of a table.
#[derive(Debug, Default)]
pub(super) struct Digest {
    rows: u64,
    hash: Sha256,
}

impl Digest {
    /// Adds a row: each value with its type and its length, so that no two rows have one text.
    pub(super) fn add(&mut self, row: &[Value]) {
        self.rows += 1;
        self.hash.update([b'r']);
        for value in row {
            match value {
                Value::Null => self.value(b'n', &[]),
                Value::Integer(number) => self.value(b'i', &number.to_be_bytes()),
                Value::Real(number) => self.value(b'f', &number.to_be_bytes()),
                Value::Text(text) => self.value(b't', text.as_bytes()),
                Value::Blob(bytes) => self.value(b'b', bytes),
            }
        }
    }

    fn value(&mut self, kind: u8, bytes: &[u8]) {
        self.hash.update([kind]);
        self.hash.update((bytes.len() as u64).to_be_bytes());
        self.hash.update(bytes);
    }

    /// The number of rows, and the hash in hexadecimal digits.
    pub(super) fn finish(self) -> (u64, String) {
        let hash = self.hash.finalize();
        (self.rows, hash.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
