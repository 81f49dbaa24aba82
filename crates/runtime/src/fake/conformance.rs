//! The suite for all backends, as far as it works without a shell.

use std::sync::Arc;

use async_trait::async_trait;
use stockade_core::SandboxId;

use super::Fake;
use crate::capability::Capability;
use crate::conformance::Backend;
use crate::runtime::{Runtime, Target};

#[async_trait]
impl Backend for Fake {
    async fn open(&self) -> Result<Arc<dyn Runtime>, String> {
        Ok(Arc::new(self.clone()))
    }

    fn shell(&self) -> Result<(), String> {
        Err("a fake sandbox has no shell".to_owned())
    }

    fn server(&self) -> Result<(), String> {
        Ok(())
    }

    async fn serve(&self, _: &dyn Runtime, id: &SandboxId, target: &Target) {
        let mut listener = self.listen(id, target.clone()).unwrap();
        tokio::spawn(async move {
            while let Some(connection) = listener.accept().await {
                let (mut reader, mut writer) = tokio::io::split(connection);
                tokio::spawn(async move { tokio::io::copy(&mut reader, &mut writer).await });
            }
        });
    }
}

fn run(name: &str) {
    crate::conformance::run(name, Ok(Arc::new(Fake::new())));
}

crate::conformance_tests!(crate::fake::conformance::run);

/// A runtime without any optional feature.
#[test]
fn a_poor_one_refuses() {
    for case in [
        "capabilities::what_cannot_be_done_is_refused",
        "limits::they_hold_or_are_refused",
        "limits::best_effort_says_what_it_was",
    ] {
        let fake = Fake::new();
        for capability in Capability::ALL {
            fake.refuse(capability, "it is poor");
        }
        crate::conformance::run(case, Ok(Arc::new(fake)));
    }
}
