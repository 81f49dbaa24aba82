//! One address of each range and each boundary, and the notations that hide a host.

use super::url::{UrlError, check, check_resolved};
use super::*;

#[test]
fn every_range_has_its_class() {
    let expected: &[(Class, &str)] = &[
        (Class::Public, "1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.0.0.1"),
        (Class::Public, "128.0.0.1 172.15.255.255 172.32.0.0 192.0.1.0 198.17.0.1 198.20.0.1"),
        (Class::Public, "223.255.255.255 2606:4700::1111 2001:200::1 2a00::1 3ffe:ffff::1"),
        (Class::Public, "::ffff:8.8.8.8 64:ff9b::8.8.8.8"),
        (Class::Unspecified, "0.0.0.0 0.1.2.3 :: ::ffff:0.0.0.0"),
        (Class::Loopback, "127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 ::ffff:7f00:1"),
        (Class::Loopback, "::127.0.0.1 ::ffff:0:127.0.0.1 64:ff9b::7f00:1 2600::5efe:127.0.0.1"),
        (Class::Private, "10.0.0.0 172.16.0.0 172.31.255.255 192.168.255.255 fc00::1 fdff::1"),
        (Class::Private, "fec0::1 feff::1 64:ff9b:1::1 ::ffff:10.0.0.1 64:ff9b::c0a8:1"),
        (Class::Carrier, "100.64.0.0 100.127.255.255"),
        (Class::LinkLocal, "169.254.0.1 fe80::1 fe90::1 febf:ffff::1"),
        (Class::Metadata, "169.254.169.254 169.254.170.2 100.100.100.200 168.63.129.16"),
        (Class::Metadata, "fd00:ec2::254 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe"),
        (Class::Documentation, "192.0.2.1 198.51.100.1 203.0.113.1 2001:db8::1 3fff::1"),
        (Class::Benchmark, "198.18.0.1 198.19.255.255 2001:2::1"),
        (Class::Multicast, "224.0.0.1 239.255.255.255 ff02::1"),
        (Class::Tunnel, "2002:7f00:1:: 2002:808:808:: 2001:0:1::1 192.88.99.1"),
        (Class::Reserved, "192.0.0.1 240.0.0.1 255.255.255.255 100::1 2001:20::1 4000::1"),
        (Class::Reserved, "::8.8.8.8 ::ffff:0:8.8.8.8 2600::200:5efe:808:808 5f00::1 1::1"),
    ];
    for (class, addresses) in expected {
        for address in addresses.split(' ') {
            assert_eq!(classify(address.parse().unwrap()), *class, "{address}");
        }
    }
}

#[test]
fn internal_names_are_known_however_they_are_written() {
    for name in ["localhost", "LOCALHOST.", "a.localhost", "x.local", "metadata.google.internal"] {
        assert!(is_internal_name(name), "{name}");
    }
    for name in ["printer", "router.home.arpa.", "git.corp", "localhost.localdomain"] {
        assert!(is_internal_name(name), "{name}");
    }
    for name in ["example.com", "notlocalhost.com", "mylocal.dev", "fd.io", "local.example.com."] {
        assert!(!is_internal_name(name), "{name}");
    }
}

#[test]
fn a_host_is_judged_in_its_canonical_form() {
    let loopback = [
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.0.0.1./",
        "http:\\\\127.0.0.1\\",
        "http:127.0.0.1",
        "http://example.com@127.0.0.1/",
        "http://user:p%40ss@127.1:80/",
        "http://１２７。０。０。１/",
        "http://%31%32%37.0.0.1/",
        "  http://127.0.\t0.1/  ",
        "HTTPS://127.0.0.1:8443/",
    ];
    for url in loopback {
        let refused = UrlError::Address { version: 4, host: "127.0.0.1".to_owned() };
        assert_eq!(check(url), Err(refused), "{url}");
    }
    let text = |url: &str| check(url).unwrap_err().to_string();
    assert_eq!(
        text("http://[::FFFF:127.0.0.1]/"),
        "IPv6 [::ffff:7f00:1] is in a private / loopback / link-local range"
    );
    assert_eq!(text("http://ⓛocalhost/"), text("http://localhost/"));
    for url in ["", "//example.com/", "http://", "http://1.2.3.4.5/", "http://a b/", "https:///"] {
        assert_eq!(text(url), format!("not a valid URL: \"{url}\""));
    }
    for url in
        ["https://user@example.com/", "https://münchen.example.org./?q#f", "http://8.8.8.8:1"]
    {
        assert!(check(url).is_ok(), "{url}");
    }
}

#[test]
fn one_internal_address_spoils_a_name() {
    let addresses = ["93.184.216.34", "10.0.0.7"].map(|address| address.parse().unwrap());
    assert_eq!(
        check_resolved("rebind.example.com", &addresses).unwrap_err().to_string(),
        "hostname \"rebind.example.com\" resolves to private IPv4 10.0.0.7"
    );
    assert_eq!(check_resolved("rebind.example.com", &addresses[..1]), Ok(()));
    assert_eq!(check_resolved("nowhere.example.com", &[]), Ok(()));
    assert_eq!(check_resolved("[::1]", &addresses), Ok(()));
}
