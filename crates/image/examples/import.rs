//! Imports an image into a data directory: `import DATA SOURCE NAME`.

use stockade_bundle::data::DataDir;
use stockade_image::{Store, import};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, data, source, name] = words.as_slice() else {
        return Err("usage: import DATA SOURCE NAME".into());
    };
    let store = Store::open(&DataDir::open(data.as_ref())?)?;
    for image in import::import(&store, &source.parse()?, Some(&name.parse()?), None)? {
        println!("{}", image.digest);
    }
    Ok(())
}
