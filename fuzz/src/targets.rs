//! The parsers that are fuzzed. A target says whether the parser accepted the input, and panics
//! when what it accepted breaks a promise.

mod compile;
mod dns;
mod ignore;
mod image;
mod index;
mod layer;
mod manifest;
mod opening;
mod patch;
mod report;
mod sandbox;
mod worker;

use std::path::Path;

use anyhow::{Context as _, ensure};

/// One parser.
#[derive(Debug)]
pub(crate) struct Target {
    /// Its name, which is also that of its corpus.
    pub(crate) name: &'static str,
    /// Words of its format.
    pub(crate) words: &'static [&'static str],
    /// Reads one input; whether it was accepted.
    pub(crate) run: fn(&[u8]) -> bool,
}

/// All parsers.
pub(crate) const TARGETS: &[Target] = &[
    Target { name: "compile", words: compile::WORDS, run: compile::run },
    Target { name: "dns", words: dns::WORDS, run: dns::run },
    Target { name: "ignore", words: ignore::WORDS, run: ignore::run },
    Target { name: "image", words: image::WORDS, run: image::run },
    Target { name: "index", words: index::WORDS, run: index::run },
    Target { name: "layer", words: layer::WORDS, run: layer::run },
    Target { name: "manifest", words: manifest::WORDS, run: manifest::run },
    Target { name: "opening", words: opening::WORDS, run: opening::run },
    Target { name: "patch", words: patch::WORDS, run: patch::run },
    Target { name: "report", words: report::WORDS, run: report::run },
    Target { name: "sandbox", words: sandbox::WORDS, run: sandbox::run },
    Target { name: "worker", words: worker::WORDS, run: worker::run },
];

/// The seeds of a target, in the order of their names.
pub(crate) fn corpus(directory: &Path, target: &Target) -> anyhow::Result<Vec<Vec<u8>>> {
    let directory = directory.join(target.name);
    let list = std::fs::read_dir(&directory);
    let list = list.with_context(|| format!("list {}", directory.display()))?;
    let mut paths = list.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    paths.sort();
    ensure!(!paths.is_empty(), "{} holds no seeds", directory.display());
    paths
        .iter()
        .map(|path| std::fs::read(path).with_context(|| format!("read {}", path.display())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of a seed says whether it must be accepted.
    #[test]
    fn seeds_are_judged_as_their_names_say() {
        for target in TARGETS {
            let mut judged = [0; 2];
            for entry in std::fs::read_dir(Path::new("corpus").join(target.name)).unwrap() {
                let path = entry.unwrap().path();
                let expected = path.file_name().unwrap().to_str().unwrap().starts_with("valid-");
                let accepted = (target.run)(&std::fs::read(&path).unwrap());
                assert_eq!(accepted, expected, "{}", path.display());
                judged[usize::from(accepted)] += 1;
            }
            assert!(judged.iter().all(|count| *count > 0), "{}: {judged:?}", target.name);
        }
    }
}
