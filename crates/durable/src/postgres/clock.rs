//! The clock of the database server, which all processes have in common: leases and the ages of records are measured
//! by it, because the clocks of several machines differ.

/// The time of the server, in milliseconds since 1970.
pub(super) const SERVER_NOW: &str = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)";
