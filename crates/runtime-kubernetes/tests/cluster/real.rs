//! The same suite against a real API server, which `STOCKADE_TEST_KUBECONFIG` names. Its nodes must be able to pull
//! `STOCKADE_TEST_KUBERNETES_IMAGE`, which contains the program `stockade`.

use std::sync::Arc;

use async_trait::async_trait;
use stockade_core::SandboxSpec;
use stockade_core::sandbox::Root;
use stockade_runtime::Runtime;
use stockade_runtime::conformance::{self, Backend};
use stockade_runtime_kubernetes::{Kubernetes, Options};
use stockade_test_support::require_nextest;

const KUBECONFIG: &str = "STOCKADE_TEST_KUBECONFIG";
const IMAGE: &str = "STOCKADE_TEST_KUBERNETES_IMAGE";
/// The image of the sandboxes.
const SANDBOX: &str = "debian:13";

#[derive(Debug)]
struct Real {
    options: Options,
    _directory: tempfile::TempDir,
}

impl Real {
    fn new() -> Result<Self, String> {
        let missing = |name: &str| format!("double only: {name} is not set");
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let kubeconfig = set(KUBECONFIG).ok_or_else(|| missing(KUBECONFIG))?;
        let image = set(IMAGE).ok_or_else(|| missing(IMAGE))?;
        let directory = tempfile::tempdir().unwrap();
        let options = Options::from_environment(directory.path().join("data"), |_| None);
        let options = Options {
            kubeconfig: Some(kubeconfig.into()),
            image: Some(image.into_string().unwrap()),
            ..options
        };
        Ok(Self { options, _directory: directory })
    }
}

#[async_trait]
impl Backend for Real {
    async fn open(&self) -> Result<Arc<dyn Runtime>, String> {
        Ok(Arc::new(Kubernetes::new(self.options.clone())))
    }

    fn spec(&self) -> SandboxSpec {
        SandboxSpec { root: Root::Image(SANDBOX.to_owned()), ..SandboxSpec::default() }
    }
}

fn cluster(case: &str) {
    require_nextest();
    conformance::run(case, Real::new().map(|real| Arc::new(real) as Arc<dyn Backend>));
}

stockade_runtime::conformance_tests!(super::cluster);
