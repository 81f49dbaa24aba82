//! Images that a request names: they are downloaded before anything of the sandbox is made, and the
//! sandbox is recorded with the digest of what the name meant then.

use stockade_api::{Caller, CreateSandbox, PullPolicy, Result};
use stockade_core::{Code, Problem};
use stockade_runtime::{Error, Runtime};

use crate::failure::runtime_problem;
use crate::image_source::ImageSource;
use crate::inner::Inner;
use crate::spec;

impl Inner {
    /// The image that a request names, with its digest; `None` if it names none. One that is missing
    /// is downloaded, if the runtime uses the store and the request does not forbid it.
    ///
    /// # Errors
    /// [`Code::ImageNotFound`], and why it cannot be downloaded.
    pub(crate) async fn resolve_image(
        &self,
        caller: &Caller,
        runtime: &dyn Runtime,
        request: &CreateSandbox,
    ) -> Result<Option<String>> {
        let Some(name) = spec::image_name(request) else { return Ok(None) };
        let source = self.options.images.clone().filter(|_| runtime.has_stored_images());
        if request.pull == PullPolicy::Always {
            let Some(source) = &source else {
                let message = format!("the runtime `{}` downloads no images", runtime.name());
                return Err(Problem::new(Code::InvalidInput, message)
                    .remedied_by("omit `pull`, or use the runtime `native`"));
            };
            self.pull(caller, &**source, name).await?;
        }
        let found = match (runtime.resolve_image(name).await, source) {
            (Err(Error::NoImage { .. }), Some(source)) if request.pull == PullPolicy::Missing => {
                self.pull(caller, &*source, name).await?;
                runtime.resolve_image(name).await
            }
            (found, _) => found,
        };
        found.map(Some).map_err(|error| runtime_problem(&error))
    }

    /// Downloads an image. A client of another host could otherwise make this server connect to any
    /// host, and use the credentials of its user there.
    async fn pull(&self, caller: &Caller, source: &dyn ImageSource, name: &str) -> Result<()> {
        let registry = source.registry(name)?;
        if caller.remote && !self.options.registries.contains(&registry) {
            let message = format!("this server downloads no images from {registry}");
            return Err(Problem::new(Code::Forbidden, message)
                .because(
                    "a request with an API key, of a web page or through a proxy may cause downloads \
                     only from the registries of a setting",
                )
                .remedied_by(format!(
                    "on the server: stockade image pull {name}, or export \
                     STOCKADE_REGISTRIES={registry} before stockade serve"
                )));
        }
        let waiting = self.downloads.begin(&caller.owner, name);
        source.pull(name, Box::new(waiting.report())).await
    }
}
