//! Many clients at once: each makes a sandbox and runs a program in it.

use std::time::{Duration, Instant};

use stockade_measure::Series;
use tokio::task::JoinSet;

use crate::scene::Scene;
use crate::{Failure, create_and_execute};

/// How many clients there are.
pub(crate) const CLIENTS: usize = 100;
/// How often they all come.
const TIMES: usize = 5;
/// How long it is quiet before they come.
const QUIET: Duration = Duration::from_millis(500);

/// Adds how long each of them took. One that fails fails the whole.
pub(crate) async fn measure(scene: &Scene, series: &mut Series) -> Result<(), Failure> {
    for _ in 0..TIMES {
        tokio::time::sleep(QUIET).await;
        scene.settle().await?;
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let (server, caller) = (scene.server.clone(), scene.caller.clone());
            clients.spawn(async move {
                let begun = Instant::now();
                let id = create_and_execute(&server, &caller).await?;
                Ok::<_, Failure>((begun.elapsed(), id))
            });
        }
        let mut made = Vec::new();
        while let Some(done) = clients.join_next().await {
            let (time, id) = done??;
            series.push_time(time);
            made.push(id);
        }
        for id in made {
            scene.kill(id).await?;
        }
    }
    Ok(())
}
