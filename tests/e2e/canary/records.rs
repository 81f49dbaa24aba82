//! The hunt where the records are in PostgreSQL: through a synchronization with a workspace, and with a
//! crash before the commit of each step of each delivery.

use rustix::process::Signal;
use stockade_test_support::{Postgres, skipped};

use super::Hunt;
use crate::call::{Call, Outcome};
use crate::daemons::wait_until;
use crate::harness::World;
use crate::served::Server;

const VARIABLE: &str = "STOCKADE_DATABASE_URL";
/// More steps than any delivery has.
const MOST_STEPS: u32 = 25;

/// A database.
pub(super) struct Database<'w> {
    world: &'w World,
    postgres: Postgres,
    pub(super) url: String,
}

impl<'w> Database<'w> {
    pub(super) fn new(world: &'w World) -> Option<Self> {
        let postgres = Postgres::start().map_err(|reason| skipped(&reason)).ok()?;
        let url = postgres.database();
        Some(Self { world, postgres, url })
    }

    fn name(&self) -> &str {
        self.url.rsplit_once('/').unwrap().1
    }

    fn sql(&self, text: &str) -> String {
        self.postgres.run_sql(self.name(), text)
    }

    /// Starts a server with its records in the database.
    fn serve(&self) -> Server {
        Server::start_with(self.world, &[], &[(VARIABLE, &self.url)])
    }

    fn stockade(&self, words: &[&str]) -> Call {
        self.world.stockade(words).deadline(100)
    }

    fn call(&self, words: &[&str], input: &str) -> Outcome {
        self.stockade(words).input(format!("{input}\n")).finish()
    }

    /// The forms of values in all rows of all tables.
    pub(super) fn finds(&self, hunt: &Hunt) -> Vec<String> {
        // Bytes are written as hexadecimal digits, on one line.
        let rows = self.sql("SET xmlbinary = 'hex'; SELECT database_to_xml(false, false, '')");
        hunt.forms_in(rows.as_bytes())
    }

    /// Everything that outlives commands, and the database.
    fn finds_nothing(&self, hunt: &Hunt, when: &str) {
        assert_eq!(self.finds(hunt), Vec::<String>::new(), "{when}");
        hunt.finds_nothing(self.world, when);
    }

    /// Lets the step of this number wait before it is committed, from now on counted.
    fn stop_before(&self, step: u32) {
        self.sql(&format!(
            "SELECT setval('public.steps', 1, false); UPDATE public.boundary SET at = {step}"
        ));
    }

    fn install_boundaries(&self) {
        self.sql(
            "CREATE SEQUENCE public.steps; CREATE TABLE public.boundary (at bigint); \
             INSERT INTO public.boundary VALUES (0); \
             CREATE FUNCTION public.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF nextval('public.steps') = (SELECT at FROM public.boundary) THEN \
             PERFORM pg_sleep(90); END IF; RETURN NEW; END $$; \
             CREATE TRIGGER wait BEFORE INSERT ON stockade.operation_outputs \
             FOR EACH ROW EXECUTE FUNCTION public.wait()",
        );
    }

    fn waits(&self) -> bool {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = '{}' AND wait_event = 'PgSleep'",
            self.name()
        );
        self.postgres.run_sql("postgres", &sql) != "0"
    }

    /// Kills the server, and ends what it has not committed.
    fn crash(&self, server: Server) {
        server.running.signal(Signal::KILL);
        server.running.finish();
        self.postgres.cut_off(self.name());
    }
}

fn no_value_is_left_in_a_database_or_a_workspace(world: &World) {
    let Some(database) = Database::new(world) else { return };
    let hunt = Hunt::new();
    let server = database.serve();
    let call = |words: &[&str]| {
        let outcome = database.call(words, "");
        outcome.succeeds();
        outcome
    };
    // The hunt itself: as text, and as bytes.
    database.sql(&format!(
        "CREATE TABLE public.planted AS SELECT '{0}'::text AS a, '{0}'::bytea AS b",
        hunt.of("planted")
    ));
    assert_eq!(database.finds(&hunt).len(), 2);
    database.sql("DROP TABLE public.planted");
    let stored = hunt.of("database");
    database.call(&["secrets", "set", "token"], &stored).succeeds();
    assert!(!world.data().join("stockade.db").exists());
    database.finds_nothing(&hunt, "after a secret was stored");
    call(&["create", "--id", "box"]);
    let length = "echo ${#TOKEN} > /tmp/t";
    call(&["exec", "--secret-env", "TOKEN=token", "box", "--", "sh", "-c", length]);
    call(&["secrets", "write", "token", "box", "/run/secrets/key"]);
    database.finds_nothing(&hunt, "after deliveries");

    // A workspace gets what a command has written, and no secret that was beside it.
    call(&["workspace", "create", "tree"]);
    let written = "mkdir -p /tmp/tree && cp /tmp/t /tmp/tree && ln -s /run/secrets /tmp/tree/link";
    call(&["exec", "box", "--", "sh", "-c", written]);
    call(&["sync", "--commit", "-m", "m", "box:/tmp/tree", "workspace:tree/code"]);
    let length = call(&["workspace", "cat", "tree", "code/t"]).stdout;
    assert_eq!(length.trim(), stored.len().to_string());
    database.finds_nothing(&hunt, "after a synchronization");
    call(&["snapshot", "box"]);
    database.crash(server);
    let _server = database.serve();
    call(&["workspace", "files", "tree"]);
    database.call(&["secrets", "rotate", "token"], &hunt.of("rotated")).succeeds();
    database.finds_nothing(&hunt, "after the end of the server");
    call(&["kill", "--discard", "box"]);
    database.finds_nothing(&hunt, "at the end");
}

/// Each delivery is interrupted before the commit of its first step, of its second one, and so on.
fn no_value_is_left_by_a_crash_before_any_step(world: &World) {
    let Some(database) = Database::new(world) else { return };
    let hunt = Hunt::new();
    let mut server = Some(database.serve());
    let variables = "sh -c 'echo ${#TOKEN}'";
    database.call(&["create", "--id", "box", "--allow", "one.test"], "").succeeds();
    database.call(&["secrets", "set", "token"], &hunt.of("first")).succeeds();
    database.install_boundaries();
    let deliveries: [&[&str]; 5] = [
        &["secrets", "rotate", "token"],
        &["secrets", "write", "token", "box", "/run/secrets/key"],
        &["exec", "--secret-env", "TOKEN=token", "box", "--", "sh", "-c", variables],
        &["secret", "set", "box", "API_KEY@one.test"],
        &["create", "--allow", "one.test", "--secret", "API_KEY@one.test"],
    ];
    let mut crashes = 0;
    for words in deliveries {
        let mut step = 0;
        loop {
            step += 1;
            assert!(step < MOST_STEPS, "{words:?}");
            let value = hunt.of("step");
            database.stop_before(step);
            let call = database.stockade(words).env("API_KEY", &value);
            let mut running = call.input(format!("{value}\n")).start();
            wait_until("the command has ended, or a step waits", || {
                !running.is_running() || database.waits()
            });
            let has_crashed = database.waits();
            if has_crashed {
                database.crash(server.take().unwrap());
                crashes += 1;
            }
            let ended = running.finish();
            assert!(!hunt.is_told(&ended), "{ended}");
            database.stop_before(0);
            if has_crashed {
                // It completes the delivery, or gives it up.
                server = Some(database.serve());
            }
            database.call(&["ls", "--all"], "").succeeds();
            let mut found = hunt.files(&world.data());
            found.extend(hunt.processes());
            found.extend(database.finds(&hunt));
            assert_eq!(found, Vec::<String>::new(), "{words:?} {step}");
            if !has_crashed {
                ended.succeeds();
                break;
            }
        }
    }
    assert!(crashes >= deliveries.len(), "{crashes}");
    database.finds_nothing(&hunt, "at the end");
}

as_root_and_as_user![
    no_value_is_left_in_a_database_or_a_workspace,
    no_value_is_left_by_a_crash_before_any_step,
];
