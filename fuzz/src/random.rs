//! Numbers that look random and follow from a seed (SplitMix64, Steele et al. 2014).

/// A sequence of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The sequence for one input of one run.
    pub(crate) fn new(seed: u64, input: u64) -> Self {
        let mut mixed = Self(seed);
        Self(mixed.next() ^ input.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "any number serves")]
        let number = self.next() as usize;
        number % limit.max(1)
    }

    /// One of the items; `None` when there are none.
    pub(crate) fn choose<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_follows_from_its_seed() {
        let take = |seed, input| {
            let mut random = Random::new(seed, input);
            [random.next(), random.next()]
        };
        assert_eq!(take(1, 2), take(1, 2));
        assert_ne!(take(1, 2), take(1, 3));
        assert_ne!(take(1, 2), take(2, 2));
        assert!((0..100).all(|input| Random::new(0, input).below(3) < 3));
    }
}
