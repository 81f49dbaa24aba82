//! A server that ends connections, restarts, or contains something else.

use std::time::Duration;

use base64::Engine as _;
use rcgen::{CertifiedKey, KeyPair};
use stockade_durable::postgres::{Options, Postgres};
use stockade_durable::{Context, Error, Migration, Statement, Status, Store as _};

use crate::world::{Counter, SOON, World, id, insert, result, start};

#[tokio::test]
async fn work_continues_when_the_server_ends_its_connections() {
    let world = World::new().await;
    let done = Counter::default();
    let counter = done.clone();
    let engine = world.engine().workflow("w", move |context: Context, (): ()| {
        let done = counter.clone();
        async move {
            for number in 0..40_u32 {
                context.step(format!("step {number}"), |_| async { Ok(done.add()) }).await?;
            }
            Ok(done.get())
        }
    });
    let engine = engine.launch().await.unwrap();
    let handle = start(&engine, "w", &(), "w").await;
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(40)).await;
        world.cut_off();
    }
    // No step ran twice: each commit was made once, also where its answer was lost.
    assert_eq!(result::<u32>(&handle).await.unwrap(), 40);
    assert_eq!(world.store.steps(&id("w")).await.unwrap().len(), 40);
    assert_eq!(engine.info(&id("w")).await.unwrap().unwrap().status, Status::Success);
}

#[tokio::test]
async fn an_answer_that_was_lost_does_not_repeat_the_write() {
    let world = World::new().await;
    for number in 0..60 {
        let name = format!("item {number}");
        let write = world.store.execute(vec![insert(&name)]);
        let cut = async {
            tokio::time::sleep(Duration::from_micros(200 * (number % 12))).await;
            if number % 3 == 0 {
                world.cut_off();
            }
        };
        let (written, ()) = tokio::join!(write, cut);
        written.unwrap();
    }
    assert_eq!(world.items().await.len(), 60);
}

#[tokio::test]
async fn a_read_whose_connection_ends_is_repeated() {
    let world = World::new().await;
    world.store.execute(vec![insert("kept")]).await.unwrap();
    for pause_us in 0..20 {
        let read = async {
            for _ in 0..20 {
                assert_eq!(world.items().await.len(), 1);
            }
        };
        let cut = async {
            tokio::time::sleep(Duration::from_micros(300 * pause_us)).await;
            world.cut_off();
        };
        tokio::join!(read, cut);
    }
}

#[tokio::test]
async fn a_schema_of_another_application_or_a_later_version_is_refused() {
    const OTHER: &[Migration] = &[Migration { number: 1, name: "other", sql: "", postgres: "" }];
    let world = World::new().await;
    let mut options = world.options();
    options.migrations = OTHER;
    let refused = Postgres::open(options.clone()).await.unwrap_err();
    assert!(matches!(refused, Error::ForeignDatabase { .. }), "{refused}");
    options.migrations = &[];
    let refused = Postgres::open(options).await.unwrap_err();
    assert!(matches!(refused, Error::NewerDatabase { found: 1, known: 0, .. }), "{refused}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    let world = World::new().await;
    let mut options = world.options();
    options.url = "postgres://someone:hidden@127.0.0.1:1/d".to_owned();
    let refused = Postgres::open(options).await.unwrap_err();
    assert!(refused.to_string().contains("127.0.0.1:1/d"), "{refused}");
    assert!(!refused.to_string().contains("hidden"), "{refused}");
}

#[tokio::test]
async fn a_failed_migration_leaves_nothing() {
    const BROKEN: &[Migration] = &[
        Migration { number: 1, name: "fine", sql: "", postgres: "CREATE TABLE fine (a BIGINT)" },
        Migration {
            number: 2,
            name: "broken",
            sql: "",
            postgres: "CREATE TABEL broken (a BIGINT)",
        },
    ];
    let world = World::new().await;
    let mut options = world.options();
    options.schema = "other".to_owned();
    options.migrations = BROKEN;
    assert!(Postgres::open(options.clone()).await.is_err());
    options.migrations = &BROKEN[..1];
    Postgres::open(options).await.unwrap();
}

#[tokio::test]
async fn a_connection_with_tls_needs_a_certificate_of_an_authority() {
    let world = World::new().await;
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let elsewhere = rcgen::generate_simple_self_signed(["db.example".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let own = store("own.pem", &certificate(&made));
    let mut options = world.options();
    let plain = options.url.clone();
    let with_tls =
        |path: &std::path::Path| format!("{plain}?sslmode=require&sslrootcert={}", path.display());
    world.speak_tls(&certificate(&made), &key(&made));
    options.url = with_tls(&own);
    let opened = until_open(&options).await;
    let query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let rows = opened.query(Statement::new(query, vec![])).await.unwrap();
    assert!(rows[0].boolean(0).unwrap());
    // Of another authority, and of another name.
    options.url = with_tls(&store("other.pem", &certificate(&other)));
    let refused = Postgres::open(options.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
    world.speak_tls(&certificate(&elsewhere), &key(&elsewhere));
    options.url = with_tls(&store("elsewhere.pem", &certificate(&elsewhere)));
    let refused = until_refused(&options).await;
    assert!(refused.contains("certificate"), "{refused}");
}

fn certificate(made: &CertifiedKey<KeyPair>) -> String {
    pem("CERTIFICATE", made.cert.der())
}

fn key(made: &CertifiedKey<KeyPair>) -> String {
    pem("PRIVATE KEY", &made.signing_key.serialize_der())
}

fn pem(label: &str, bytes: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line));
    let lines = lines.collect::<Vec<_>>().join("\n");
    format!("-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n")
}

/// The server takes a moment to read its new configuration.
async fn until_open(options: &Options) -> Postgres {
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        match Postgres::open(options.clone()).await {
            Ok(store) => return store,
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The error once the server has its new certificate, which until then is not that of the options.
async fn until_refused(options: &Options) -> String {
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let error = Postgres::open(options.clone()).await.unwrap_err().to_string();
        if error.contains("not valid for name") || tokio::time::Instant::now() > deadline {
            return error;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
