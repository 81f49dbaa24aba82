//! Runs that an earlier version of the program left in its database continue.

use serde_json::json;
use stockade_api::{Decide, RunById, RunStatus, Workflows as _};

use crate::world::World;

const OLD_DATABASE: &str = include_str!("../../../../tests/database/0007.sql");

#[tokio::test]
async fn runs_of_an_earlier_program_go_on() {
    let world = World::with_options(|options| {
        options.executor_id = "local-workflows".to_owned();
        let beside = options.agents.as_ref().unwrap();
        let database = rusqlite::Connection::open(beside.with_file_name("test.db")).unwrap();
        database.execute_batch(OLD_DATABASE).unwrap();
    })
    .await;
    let run = async |id: &str| {
        let id = RunById { id: id.to_owned() };
        world.workflows.run(&world.caller, id).await.unwrap()
    };
    let ended = run("hello-1").await;
    assert_eq!(ended.status, RunStatus::Finished);
    assert_eq!(ended.output, Some(json!({ "text": "Hello, world!", "letters": 13 })));
    assert_eq!(world.tasks(&ended).await.len(), 2);

    let waiting = run("approval-1").await;
    assert_eq!(waiting.status, RunStatus::Waiting, "{waiting:?}");
    let decision = Decide {
        id: waiting.id.clone(),
        task: "deploy".to_owned(),
        approved: true,
        note: None,
        only: Vec::new(),
        allow_executed: false,
    };
    world.workflows.decide(&world.caller, decision).await.unwrap();
    let ended = world.ended(&waiting.id).await;
    assert_eq!(ended.status, RunStatus::Finished, "{ended:?}");
    assert_eq!(ended.output, Some(json!({ "deployed": true })));
}
