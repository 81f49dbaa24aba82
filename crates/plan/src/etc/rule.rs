//! Which entries of the host's `/etc` sandboxes see: what every user of the host may read, except
//! for what identifies the host or its users, and what may hold a key, a password or a token.
//!
//! A name decides about most of that; the content of a file decides about the rest, because keys
//! lie under any name.

use std::path::Path;

/// Entries of `/etc` that identify the host, its users or its networks, or that configure
/// authentication, with everything below them. `*` stands for any rest of the name.
const DENIED: &[&str] = &[
    "NetworkManager",
    "adjtime",
    "aliases*",
    "anacrontab",
    "ansible",
    "at.*",
    "ceph",
    "chatscripts",
    "chef",
    "cloud",
    "cni",
    "consul*",
    "containerd",
    "containers",
    "cron*",
    "crypttab",
    "curlrc",
    "docker",
    "dovecot",
    "exim4",
    "exports*",
    "fstab",
    "gitconfig",
    "group*",
    "gshadow*",
    "hostid",
    "hostname",
    "hosts*",
    "ipsec*",
    "iscsi",
    "krb5*",
    "kubernetes",
    "ldap*",
    "letsencrypt",
    "machine-*",
    "mail*",
    "mtab",
    "netplan",
    "netrc",
    "network*",
    "nomad*",
    "npmrc",
    "nslcd*",
    "nsswitch.conf",
    "nvme",
    "openldap",
    "openvpn",
    "passwd*",
    "pip.conf",
    "postfix",
    "ppp",
    "printcap",
    "puppet*",
    "rancher",
    "resolv*",
    "salt",
    "samba",
    "sasl*",
    "shadow*",
    "ssh",
    "sssd",
    "stockade",
    "subgid*",
    "subuid*",
    "sudo*",
    "swanctl",
    "systemd",
    "vault*",
    "wgetrc",
    "wireguard",
    "wpa_supplicant",
];

/// Parts of names, at any depth and in any case, under which keys and passwords are kept.
const SECRET_NAMES: &[&str] = &[
    "auth.conf",
    "authinfo",
    "credential",
    "htpasswd",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
    "keytab",
    "netrc",
    "password",
    "private",
    "secret",
    "shadow",
    "token",
];

/// Ends of names of keys, and of old versions of files.
const SECRET_ENDS: &[&str] =
    &["-", "~", ".bak", ".jceks", ".jks", ".kdbx", ".key", ".old", ".orig", ".p12", ".pfx", ".swp"];

/// Where links of `/etc` may lead.
const LINK_TARGETS: &[&str] = &[
    "/etc",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/proc",
    "/dev",
];

/// Marks of keys in the content of a file.
const KEY_MARKS: &[&[u8]] = &[b"PRIVATE KEY", b"_authToken", b":_password", b"PuTTY-User-Key"];

/// Ends of the names of variables that hold secrets.
const SECRET_VARIABLES: &[&[u8]] =
    &[b"TOKEN", b"SECRET", b"PASSWORD", b"PASSWD", b"_KEY", b"APIKEY"];

/// Whether sandboxes may see an entry with this name, in `/etc` itself if `at_top` is set, else in
/// a visible directory below it.
pub(super) fn is_visible(name: &[u8], at_top: bool) -> bool {
    let matches = |denied: &&str| match denied.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => name == denied.as_bytes(),
    };
    let is_denied = at_top && DENIED.iter().any(matches);
    !is_denied && !is_secret(name)
}

fn is_secret(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let holds = |part: &str| name.windows(part.len()).any(|window| window == part.as_bytes());
    name.starts_with(b".")
        || SECRET_NAMES.iter().any(|part| holds(part))
        || SECRET_ENDS.iter().any(|end| name.ends_with(end.as_bytes()))
}

/// Whether a link of `/etc` may be shown: its text names nothing but system files.
pub(super) fn is_visible_link(target: &Path) -> bool {
    target.is_relative() || LINK_TARGETS.iter().any(|top| target.starts_with(top))
}

/// What identifies the host in the content of files.
#[derive(Debug, Default)]
pub(super) struct HostMarks(Vec<Vec<u8>>);

impl HostMarks {
    /// Those of this host: its machine id, and its name unless that could be an ordinary word.
    pub(super) fn of_host() -> Self {
        let mut marks = Vec::new();
        if let Ok(id) = std::fs::read("/etc/machine-id") {
            marks.push(id.trim_ascii().to_vec());
        }
        let name = rustix::system::uname().nodename().to_bytes().to_vec();
        if name.iter().any(|byte| byte.is_ascii_digit() || b"-.".contains(byte)) {
            marks.push(name);
        }
        Self::new(marks)
    }

    fn new(marks: Vec<Vec<u8>>) -> Self {
        Self(marks.into_iter().filter(|mark| mark.len() >= 6).collect())
    }

    /// Whether a content neither identifies the host nor holds a key.
    pub(super) fn are_absent(&self, content: &[u8]) -> bool {
        let holds = |mark: &[u8]| content.windows(mark.len()).any(|window| window == mark);
        !self.0.iter().any(|mark| holds(mark))
            && !KEY_MARKS.iter().any(|mark| holds(mark))
            && !content.split(|byte| *byte == b'\n').any(has_credential)
    }
}

/// Whether a line sets a variable that holds a secret, or has a password in a URL.
fn has_credential(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let set = line.strip_prefix(b"export ").unwrap_or(line);
    if let Some(at) = set.iter().position(|byte| *byte == b'=') {
        let (name, value) = (&set[..at], &set[at + 1..]);
        let is_variable = !name.is_empty()
            && name.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_');
        if is_variable
            && !value.is_empty()
            && SECRET_VARIABLES.iter().any(|end| name.ends_with(end))
        {
            return true;
        }
    }
    let mut rest = line;
    while let Some(at) = rest.windows(3).position(|window| window == b"://") {
        rest = &rest[at + 3..];
        let end = rest.iter().position(|byte| b"/ \t\"'>)".contains(byte)).unwrap_or(rest.len());
        let authority = &rest[..end];
        if let Some(user) = authority.iter().rposition(|byte| *byte == b'@')
            && authority[..user].contains(&b':')
        {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_visible_path(below: &str) -> bool {
        below.split('/').enumerate().all(|(depth, name)| is_visible(name.as_bytes(), depth == 0))
    }

    #[test]
    fn names_of_keys_and_of_the_host_are_not_visible() {
        for name in [
            "java-17-openjdk/security/java.security",
            "alternatives/java",
            "ssl/certs/ca-certificates.crt",
            "ssl/openssl.cnf",
            "fonts/fonts.conf",
            "maven/settings.xml",
            "ld.so.cache",
            "X11/rgb.txt",
        ] {
            assert!(is_visible_path(name), "{name}");
        }
        for name in [
            "shadow",
            "gshadow-",
            "passwd-",
            "ssh/ssh_host_rsa_key.pub",
            "machine-id",
            "hostname",
            "ssl/private/snakeoil.pem",
            "ssl/own.key",
            "sudoers.d/me",
            "krb5.keytab",
            "cron.d/job",
            "nginx/.htpasswd",
            "apt/auth.conf.d/x",
            "tool/Credentials.json",
            "app/api-token",
            "docker/daemon.json",
            "hosts.allow",
            "NetworkManager/x",
            "fstab",
            "x/id_rsa",
            "a/.env",
        ] {
            assert!(!is_visible_path(name), "{name}");
        }
    }

    #[test]
    fn keys_are_found_under_any_name() {
        let marks = HostMarks::new(vec![b"host-17".to_vec(), b"abc".to_vec()]);
        for content in [
            &b"-----BEGIN RSA PRIVATE KEY-----"[..],
            b"//registry/:_authToken=x",
            b"export API_TOKEN=abc",
            b"DB_PASSWORD=x",
            b"url = https://me:pass@example.com/x",
            b"welcome to host-17\n",
        ] {
            assert!(!marks.are_absent(content), "{}", String::from_utf8_lossy(content));
        }
        for content in [
            &b"keystore.type=pkcs12\n# password=\n"[..],
            b"PATH=/usr/bin\nTOKEN=\n",
            b"see https://example.com/a:b@c and abc",
            b"-----BEGIN CERTIFICATE-----",
            b"",
        ] {
            assert!(marks.are_absent(content), "{}", String::from_utf8_lossy(content));
        }
    }

    #[test]
    fn links_lead_to_system_files_only() {
        for (target, visible) in
            [("/usr/bin/vi", true), ("../x", true), ("/home/me/x", false), ("/root", false)]
        {
            assert_eq!(is_visible_link(Path::new(target)), visible, "{target}");
        }
    }
}
