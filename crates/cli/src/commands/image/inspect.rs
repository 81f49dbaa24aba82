//! `stockade image inspect`.

use serde_json::{Value, json};

use super::{find, open};
use crate::args::image::ImageInspect;
use crate::commands::print::print;
use crate::problem::Failure;
use crate::registry;

/// Prints what is known about images, as a list.
pub(super) fn run(arguments: &ImageInspect) -> Result<u8, Failure> {
    let (_, store) = open()?;
    let wanted = registry::platform(arguments.platform.as_deref())?;
    let mut list = Vec::new();
    for name in &arguments.names {
        let found = find(&store, name)?;
        let record = found.iter().find(|record| record.platform == wanted);
        // Without a platform in the request, the only one that there is.
        let record = record.or_else(|| found.first().filter(|_| arguments.platform.is_none()));
        let Some(record) = record else {
            return Err(registry::missing(&registry::reference(name)?).into());
        };
        let image = store.load(&record.digest, Some(record.reference.clone()));
        let image = image.map_err(|error| registry::store_problem(&error))?;
        let mut answer = super::list::to_json(record);
        answer["config"] = json!(image.configuration.config);
        let layer = |layer: &stockade_image::Descriptor| -> Value {
            json!({ "digest": layer.digest, "sizeBytes": layer.size, "mediaType": layer.media_type })
        };
        answer["layers"] = image.manifest.layers.iter().map(layer).collect();
        answer["diffIds"] = json!(image.configuration.rootfs.diff_ids);
        list.push(answer);
    }
    print(&list)?;
    Ok(0)
}
