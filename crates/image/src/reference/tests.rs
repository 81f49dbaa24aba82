//! Names of images as Docker reads them.

use super::*;

const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn read(text: &str) -> String {
    text.parse::<Reference>().unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
}

#[test]
fn a_name_is_completed_as_docker_does() {
    for (text, whole) in [
        ("busybox", "docker.io/library/busybox:latest"),
        ("node:20-alpine", "docker.io/library/node:20-alpine"),
        ("opensuse/leap:15.3", "docker.io/opensuse/leap:15.3"),
        ("docker.io/node", "docker.io/library/node:latest"),
        ("index.docker.io/node", "docker.io/library/node:latest"),
        ("test.com:tag", "docker.io/library/test.com:tag"),
        ("test.com:5000", "docker.io/library/test.com:5000"),
        ("test.com/repo:tag", "test.com/repo:tag"),
        ("test:5000/repo", "test:5000/repo:latest"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/team/app:1.2_x", "localhost:5000/team/app:1.2_x"),
        ("127.0.0.1:5000/app", "127.0.0.1:5000/app:latest"),
        ("[::1]:5000/app:v1", "[::1]:5000/app:v1"),
        ("foo_bar.com:8080", "docker.io/library/foo_bar.com:8080"),
        ("a/b/c/d/e", "docker.io/a/b/c/d/e:latest"),
        ("gcr.io/distroless/static-debian12:nonroot", "gcr.io/distroless/static-debian12:nonroot"),
        ("xn--n3h.com/myimage:xn--n3h.com", "xn--n3h.com/myimage:xn--n3h.com"),
        ("a__b/c---d/e.f", "docker.io/a__b/c---d/e.f:latest"),
    ] {
        assert_eq!(read(text), whole, "{text}");
        assert_eq!(read(whole), whole, "{text}");
    }
}

#[test]
fn a_digest_decides_and_a_tag_beside_it_is_kept() {
    let both: Reference = format!("node:20@sha256:{HEX}").parse().unwrap();
    assert_eq!(both.tag(), Some("20"));
    assert_eq!(both.digest().unwrap().hex(), HEX);
    let only: Reference = format!("localhost:5000/node@sha256:{HEX}").parse().unwrap();
    assert_eq!((only.tag(), only.registry()), (None, "localhost:5000"));
    assert!(!only.is_unpinned() && "node".parse::<Reference>().unwrap().is_unpinned());
    assert!(!"node:latest".parse::<Reference>().unwrap().is_unpinned());
}

#[test]
fn what_people_write_is_shown() {
    for (text, familiar) in [
        ("node", "node:latest"),
        ("docker.io/team/app:1", "team/app:1"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        ("docker.io/library/node:20", "node:20"),
    ] {
        assert_eq!(text.parse::<Reference>().unwrap().familiar(), familiar);
    }
}

#[test]
fn what_names_no_image_is_refused() {
    let long = "a/".repeat(130) + "b";
    let tag = format!("node:{}", "a".repeat(129));
    for text in [
        "",
        ":tag",
        "Node",
        "node:",
        "node:-x",
        "node@",
        "node@sha256:abc",
        "node@md5:abc",
        "node@sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
        "a//b",
        "/a",
        "a/",
        "./a",
        "../a",
        "a/../b",
        "a..b",
        "-a",
        "a-",
        "a___b",
        "node:a/b",
        "reg.example:/a",
        "reg.example:99999/a",
        "reg.example:0/a",
        "https://reg.example/a",
        "node 20",
        "node\n",
        "reg..example/a",
        "[::1/a",
        "[zz]:1/a",
        "ä",
        &long,
        &tag,
    ] {
        assert!(text.parse::<Reference>().is_err(), "{text:?}");
    }
}
