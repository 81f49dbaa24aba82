//! Each runtime under the suite that every backend must pass, under attack from inside and
//! under faults of the machine, as root and as an ordinary user: a client in this process, and the
//! built `stockade` binary as the keeper.

mod access;
mod attacks;
mod codeplane;
mod docker;
mod faults;
mod identity;
mod native;
mod network;
mod opensandbox;
mod service;
#[path = "../cases/support.rs"]
#[expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]
mod support;

mod root {
    //! As root.
    stockade_runtime::conformance_tests!(crate::identity::as_root);
}

mod containers {
    //! With a Docker Engine.
    stockade_runtime::conformance_tests!(crate::docker::as_root);
}

mod user {
    //! As an ordinary user.
    stockade_runtime::conformance_tests!(crate::identity::as_user);
}

mod image_root {
    //! In an image, as root.
    stockade_runtime::conformance_tests!(crate::identity::image_as_root);
}

mod bwrap_root {
    //! With bubblewrap, as root.
    stockade_runtime::conformance_tests!(crate::identity::bwrap_as_root);
}

mod bwrap_user {
    //! With bubblewrap, as an ordinary user.
    stockade_runtime::conformance_tests!(crate::identity::bwrap_as_user);
}

mod elsewhere {
    //! On a server of OpenSandbox, which another Stockade is.
    stockade_runtime::conformance_tests!(crate::opensandbox::run);
}

mod workspaces_elsewhere {
    //! In workspaces of a double of Codeplane.
    stockade_runtime::conformance_tests!(crate::codeplane::run);
}
