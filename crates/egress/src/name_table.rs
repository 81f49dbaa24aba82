//! The addresses that stand for names inside one sandbox: each name gets its own, from the range
//! for network benchmarks, which is not routed outside (RFC 2544, RFC 5180). An address is never
//! reused for another name, so a connection to it identifies the name.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use stockade_core::network::{Name, Refusal};
use tokio::time::Instant;

/// 198.18.0.0/15.
const FIRST_4: u32 = 0xc612_0000;
/// 2001:2::/48.
const FIRST_6: u128 = 0x2001_0002 << 96;
/// How many addresses both ranges have, except the last one, which looks like a broadcast address.
const ADDRESSES: u32 = (1 << 17) - 1;

/// The shortest and longest validity of a response of a name server.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);

/// The meaning of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AddressUse {
    /// It is a real address.
    Literal,
    /// It stands for a name.
    Name(Name),
    /// It is in the range for names, but not assigned.
    Unassigned,
}

/// The names of one sandbox.
#[derive(Debug)]
pub(crate) struct NameTable {
    by_name: HashMap<Name, usize>,
    entries: Vec<Entry>,
    limit: usize,
}

#[derive(Debug)]
struct Entry {
    name: Name,
    /// The resolved addresses of the name, and until when they are valid.
    pinned: Option<(Vec<IpAddr>, Instant)>,
}

impl NameTable {
    /// An empty table for at most so many names.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            by_name: HashMap::new(),
            entries: Vec::new(),
            limit: limit.min(ADDRESSES as usize - 1),
        }
    }

    /// Stores the addresses of a name, and how long they are valid.
    ///
    /// # Errors
    /// [`Refusal::TooMany`] for a new name once the table is full.
    pub(crate) fn pin(
        &mut self,
        name: &Name,
        addresses: Vec<IpAddr>,
        valid: Duration,
    ) -> Result<(), Refusal> {
        let pinned = Some((addresses, Instant::now() + valid.clamp(SHORTEST, LONGEST)));
        let at = self.assign(name)?;
        if let Some(entry) = self.entries.get_mut(at) {
            entry.pinned = pinned;
        }
        Ok(())
    }

    /// Assigns addresses that stand for a name, whose own ones need not be known. Returns the number
    /// of its entry.
    ///
    /// # Errors
    /// As [`Self::pin`].
    pub(crate) fn assign(&mut self, name: &Name) -> Result<usize, Refusal> {
        if let Some(at) = self.by_name.get(name) {
            return Ok(*at);
        }
        let at = self.entries.len();
        if at >= self.limit {
            return Err(Refusal::TooMany { what: "names", limit: self.limit });
        }
        self.by_name.insert(name.clone(), at);
        self.entries.push(Entry { name: name.clone(), pinned: None });
        Ok(at)
    }

    /// The addresses of a name, if they are still valid.
    pub(crate) fn pinned(&self, name: &Name) -> Option<Vec<IpAddr>> {
        let entry = self.entries.get(*self.by_name.get(name)?)?;
        let (addresses, until) = entry.pinned.as_ref()?;
        (Instant::now() < *until).then(|| addresses.clone())
    }

    /// The addresses that stand for a name that was resolved or assigned.
    pub(crate) fn addresses(&self, name: &Name) -> Option<(Ipv4Addr, Ipv6Addr)> {
        // The first address of a range is not assigned.
        let number = u32::try_from(*self.by_name.get(name)?).ok()?.checked_add(1)?;
        let v4 = Ipv4Addr::from_bits(FIRST_4.checked_add(number)?);
        Some((v4, Ipv6Addr::from_bits(FIRST_6 | u128::from(v4.to_bits()))))
    }

    /// The meaning of an address.
    pub(crate) fn address_use(&self, address: IpAddr) -> AddressUse {
        let bits = match address.to_canonical() {
            IpAddr::V4(v4) => v4.to_bits(),
            IpAddr::V6(v6) if v6.to_bits() >> 80 == FIRST_6 >> 80 => {
                match u32::try_from(v6.to_bits() ^ FIRST_6) {
                    Ok(low) => low,
                    Err(_) => return AddressUse::Unassigned,
                }
            }
            IpAddr::V6(_) => return AddressUse::Literal,
        };
        if bits & !ADDRESSES != FIRST_4 {
            return if address.to_canonical().is_ipv6() {
                AddressUse::Unassigned
            } else {
                AddressUse::Literal
            };
        }
        let number = (bits & ADDRESSES).checked_sub(1).and_then(|at| usize::try_from(at).ok());
        match number.and_then(|at| self.entries.get(at)) {
            Some(entry) => AddressUse::Name(entry.name.clone()),
            None => AddressUse::Unassigned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn pin(names: &mut NameTable, text: &str) -> Result<(), Refusal> {
        names.pin(&name(text), vec![Ipv4Addr::LOCALHOST.into()], Duration::from_secs(60))
    }

    #[test]
    fn each_name_has_addresses_of_its_own_for_good() {
        let mut names = NameTable::new(2);
        assert_eq!(names.addresses(&name("a.example")), None);
        pin(&mut names, "a.example").unwrap();
        pin(&mut names, "b.example").unwrap();
        let a = names.addresses(&name("a.example")).unwrap();
        let b = names.addresses(&name("b.example")).unwrap();
        assert_eq!(a.0, Ipv4Addr::new(198, 18, 0, 1));
        assert_eq!(a.1.to_string(), "2001:2::c612:1");
        assert_ne!(a, b);
        for address in [IpAddr::from(a.0), a.1.into(), a.0.to_ipv6_mapped().into()] {
            assert_eq!(names.address_use(address), AddressUse::Name(name("a.example")));
        }
        pin(&mut names, "a.example").unwrap();
        assert_eq!(names.addresses(&name("a.example")), Some(a));
        let refused = pin(&mut names, "c.example").unwrap_err();
        assert_eq!(refused, Refusal::TooMany { what: "names", limit: 2 });
    }

    #[test]
    fn what_nobody_was_given_stands_for_nothing() {
        let mut names = NameTable::new(9);
        pin(&mut names, "a.example").unwrap();
        for (text, expected) in [
            ("198.18.0.0", AddressUse::Unassigned),
            ("198.18.0.2", AddressUse::Unassigned),
            ("198.19.255.255", AddressUse::Unassigned),
            ("2001:2::1", AddressUse::Unassigned),
            ("2001:2::1:c612:1", AddressUse::Unassigned),
            ("2001:2:0:1::c612:1", AddressUse::Unassigned),
            ("2001:2:1::c612:1", AddressUse::Literal),
            ("198.17.255.255", AddressUse::Literal),
            ("198.20.0.1", AddressUse::Literal),
            ("64:ff9b::c612:1", AddressUse::Literal),
            ("::1", AddressUse::Literal),
        ] {
            assert_eq!(names.address_use(text.parse().unwrap()), expected, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_believed_for_a_bounded_time() {
        let mut names = NameTable::new(9);
        let addresses = vec![IpAddr::from(Ipv4Addr::LOCALHOST)];
        for (valid, believed) in [(0, 1), (60, 60), (1_000_000, 300)] {
            names.pin(&name("a"), addresses.clone(), Duration::from_secs(valid)).unwrap();
            tokio::time::advance(Duration::from_secs(believed) - Duration::from_millis(1)).await;
            assert_eq!(names.pinned(&name("a")), Some(addresses.clone()));
            tokio::time::advance(Duration::from_millis(1)).await;
            assert_eq!(names.pinned(&name("a")), None);
        }
    }
}
