//! The host is updated while it has sandboxes: new ones use another skeleton as the lower layer.

use std::fs;
use std::path::PathBuf;

use stockade_runtime::Runtime as _;

use super::scene::{Scene, run_scene};
use crate::native::NativeFixture;

/// The old skeleton is removed with the last sandbox that uses it.
pub(super) fn old_skeletons_are_collected() {
    run_scene(NativeFixture::new(0), async |scene| {
        let old = scene.create("old").await;
        let current = scene.record(&old)["stage"]["held"]["skeleton"].as_str().unwrap().to_owned();
        scene.kill_keeper().await;
        // As if the host had been different when it was created, and different again before that.
        let path = scene.fixture().runtime().join("sandboxes/old/record.json");
        let record = fs::read_to_string(&path).unwrap();
        let [used, unused] = ["0", "1"].map(|digit| digit.repeat(current.len()));
        fs::write(&path, record.replace(&current, &used)).unwrap();
        for skeleton in [&used, &unused] {
            fs::create_dir_all(skeletons(scene).join(skeleton).join("usr")).unwrap();
        }

        scene.create("new").await;
        scene
            .eventually("the end of one that nobody uses", async |scene| {
                !skeletons(scene).join(&unused).exists()
            })
            .await;
        assert!(skeletons(scene).join(&used).exists() && skeletons(scene).join(&current).exists());
        assert_eq!(scene.run(&old, "one", "echo on").await.expect_success(), "on\n");

        scene.native.cleanup(&old).await.unwrap();
        scene.kill_keeper().await;
        scene.create("newer").await;
        scene
            .eventually("the end of one that nobody uses any more", async |scene| {
                !skeletons(scene).join(&used).exists()
            })
            .await;
        assert!(skeletons(scene).join(&current).exists());
    });
}

fn skeletons(scene: &Scene) -> PathBuf {
    scene.fixture().runtime().join("skeleton")
}
