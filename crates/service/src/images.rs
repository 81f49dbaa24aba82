//! Images that a request names: they are downloaded before anything of the sandbox is made, and the
//! sandbox is recorded with the digest of what the name meant then. The store itself: list, pull, remove.

use stockade_api::{
    Caller, CreateSandbox, ImageList, PullImage, PullPolicy, PulledImage, RemoveImage,
    RemovedImages, Result,
};
use stockade_core::{Code, Problem};
use stockade_runtime::{Error, Runtime};

use crate::failure::runtime_problem;
use crate::image_source::ImageSource;
use crate::inner::Inner;
use crate::service::Service;
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
            self.pull(caller, &**source, &by_name(name)).await?;
        }
        let found = match (runtime.resolve_image(name).await, source) {
            (Err(Error::NoImage { .. }), Some(source)) if request.pull == PullPolicy::Missing => {
                self.pull(caller, &*source, &by_name(name)).await?;
                runtime.resolve_image(name).await
            }
            (found, _) => found,
        };
        found.map(Some).map_err(|error| runtime_problem(&error))
    }

    /// Downloads an image. A client of another host could otherwise make this server connect to any
    /// host, and use the credentials of its user there.
    async fn pull(
        &self,
        caller: &Caller,
        source: &dyn ImageSource,
        request: &PullImage,
    ) -> Result<PulledImage> {
        let name = request.image.as_str();
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
        let waiting = self.downloads.begin(&caller.owner, name, caller.remote)?;
        source.pull(request, Box::new(waiting.report())).await
    }

    /// Where the images of the store come from.
    fn image_source(&self) -> Result<&dyn ImageSource> {
        self.options
            .images
            .as_deref()
            .ok_or_else(|| Problem::new(Code::Unsupported, "this server has no store of images"))
    }
}

fn by_name(name: &str) -> PullImage {
    PullImage { image: name.to_owned(), platform: None }
}

/// The images in the store.
pub(crate) async fn list(service: &Service) -> Result<ImageList> {
    let runtime = service.inner.runtime(service.inner.default_runtime)?;
    let images = runtime.images().await.map_err(|error| runtime_problem(&error))?;
    Ok(ImageList { images })
}

/// Downloads an image.
pub(crate) async fn pull(
    service: &Service,
    caller: &Caller,
    request: PullImage,
) -> Result<PulledImage> {
    let source = service.inner.image_source()?;
    service.inner.pull(caller, source, &request).await
}

/// Removes an image. All owners use the store, so one of them cannot remove what others may need.
pub(crate) async fn remove(
    service: &Service,
    caller: &Caller,
    request: RemoveImage,
) -> Result<RemovedImages> {
    if !caller.admin {
        return Err(Problem::new(Code::Forbidden, "only an admin may remove images")
            .because("all owners use the images, and the API key of the request has no admin scope")
            .remedied_by("stockade keys create --admin"));
    }
    service.inner.image_source()?.remove(&request.image).await
}
