//! Images with the layouts, users, entrypoints and settings of twenty popular ones: each is run, and
//! made a sandbox of.

use serde_json::{Value, json};

use super::sample::{Layer, base, busybox, import};
use crate::harness::World;

/// Where the files of an image are.
#[derive(Clone, Copy)]
enum Layout {
    /// `/bin` is a directory, as in Alpine.
    Musl,
    /// `/bin` leads to `/usr/bin`, as in Debian.
    Merged,
    /// Programs, and no shell under its usual name.
    NoShell,
    /// One program and nothing else.
    Scratch,
}

/// An image, and what it must do.
struct Popular {
    name: &'static str,
    layout: Layout,
    /// The lines of `/etc/passwd` and `/etc/group` beside those of root.
    users: (&'static str, &'static str),
    /// Scripts and files: names with contents; a script starts with `#!`.
    files: &'static [(&'static str, &'static str)],
    config: fn() -> Value,
    /// What `run` prints without arguments, with the id of the user in place of `UID`, its groups in place
    /// of `GROUPS`, and the directory in which a run starts in place of `PROJECT`.
    prints: &'static str,
    /// The user and the groups that the command has for root.
    user: (u32, &'static str),
}

const ENTRY: &str = "#!/bin/sh\nset -e\nif [ \"${1#-}\" != \"$1\" ]; then set -- serve \"$@\"; fi\n\
                     echo entry of $(id -u)\nexec \"$@\"\n";
const WHO: &str = "#!/bin/sh\necho $(id -u) $(id -G) $(pwd)\n";

fn popular() -> Vec<Popular> {
    const NOBODY: (&str, &str) = ("", "");
    let root = (0, "0");
    vec![
        Popular {
            name: "alpine:3.20",
            layout: Layout::Musl,
            users: ("", "bin:x:1:root,bin,daemon\nwheel:x:10:root\n"),
            files: &[("usr/bin/who-am-i", "#!/bin/sh\necho $(id -u) $(pwd)\n")],
            config: || json!({ "Cmd": ["/bin/sh", "-c", "who-am-i"], "Env": ["PATH=/usr/bin:/bin"] }),
            prints: "UID PROJECT\n",
            user: (0, "0 1 10"),
        },
        Popular {
            name: "debian:12",
            layout: Layout::Merged,
            users: NOBODY,
            files: &[("bin/who-am-i", WHO)],
            config: || json!({ "Cmd": ["who-am-i"] }),
            prints: "UID GROUPS PROJECT\n",
            user: root,
        },
        Popular {
            name: "gcr.io/distroless/static:nonroot",
            layout: Layout::NoShell,
            users: (
                "nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n",
                "nonroot:x:65532:\n",
            ),
            files: &[],
            config: || {
                json!({ "User": "65532", "WorkingDir": "/home/nonroot",
                    "Entrypoint": ["/app/busybox", "sh", "-c", "/app/busybox id -u; /app/busybox pwd"],
                    "Env": ["SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"] })
            },
            prints: "UID\nPROJECT\n",
            user: (65532, "65532"),
        },
        Popular {
            name: "node:20",
            layout: Layout::Merged,
            users: ("node:x:1000:1000::/home/node:/bin/bash\n", "node:x:1000:\n"),
            files: &[("usr/local/bin/docker-entrypoint.sh", ENTRY), ("usr/local/bin/node", WHO)],
            config: || json!({ "Entrypoint": ["docker-entrypoint.sh"], "Cmd": ["node"] }),
            prints: "entry of UID\nUID GROUPS PROJECT\n",
            user: root,
        },
        Popular {
            name: "node-app:1",
            layout: Layout::Merged,
            users: ("node:x:1000:1000::/home/node:/bin/bash\n", "node:x:1000:\nvideo:x:44:node\n"),
            files: &[("usr/local/bin/node", WHO)],
            config: || json!({ "User": "node", "WorkingDir": "/usr/src/app", "Cmd": ["node", "index.js"] }),
            prints: "UID GROUPS PROJECT\n",
            user: (1000, "1000 44"),
        },
        Popular {
            name: "postgres:16",
            layout: Layout::Merged,
            users: (
                "postgres:x:999:999::/var/lib/postgresql:/bin/bash\n",
                "postgres:x:999:\nssl-cert:x:101:postgres\n",
            ),
            files: &[
                ("usr/local/bin/docker-entrypoint.sh", ENTRY),
                ("usr/local/bin/postgres", "#!/bin/sh\ntouch $PGDATA/PG_VERSION && ls $PGDATA\n"),
            ],
            config: || {
                json!({ "Entrypoint": ["docker-entrypoint.sh"], "Cmd": ["postgres"],
                    "Env": ["PGDATA=/var/lib/postgresql/data", "PATH=/usr/local/bin:/usr/bin:/bin"],
                    "Volumes": { "/var/lib/postgresql/data": {} }, "StopSignal": "SIGINT",
                    "ExposedPorts": { "5432/tcp": {} } })
            },
            prints: "entry of UID\nPG_VERSION\n",
            user: root,
        },
        Popular {
            name: "nginx:1.27",
            layout: Layout::Merged,
            users: ("nginx:x:101:101::/nonexistent:/bin/false\n", "nginx:x:101:\n"),
            files: &[
                ("docker-entrypoint.sh", ENTRY),
                ("usr/sbin/nginx", "#!/bin/sh\necho nginx $*\n"),
            ],
            config: || {
                json!({ "Entrypoint": ["/docker-entrypoint.sh"], "Cmd": ["nginx", "-g", "daemon off;"],
                    "StopSignal": "SIGQUIT", "ExposedPorts": { "80/tcp": {} } })
            },
            prints: "entry of UID\nnginx -g daemon off;\n",
            user: root,
        },
        Popular {
            name: "python:3.12",
            layout: Layout::Merged,
            users: NOBODY,
            files: &[("usr/local/bin/python3", "#!/bin/sh\necho $LANG $PYTHON_VERSION\n")],
            config: || {
                json!({ "Cmd": ["python3"], "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8",
                    "PYTHON_VERSION=3.12.4"] })
            },
            prints: "C.UTF-8 3.12.4\n",
            user: root,
        },
        Popular {
            name: "redis:7",
            layout: Layout::Merged,
            users: ("redis:x:999:999::/home/redis:/bin/sh\n", "redis:x:999:\n"),
            files: &[
                ("usr/local/bin/docker-entrypoint.sh", ENTRY),
                ("usr/local/bin/redis-server", WHO),
            ],
            config: || {
                json!({ "Entrypoint": ["docker-entrypoint.sh"], "Cmd": ["redis-server"],
                    "WorkingDir": "/data", "Volumes": { "/data": {} } })
            },
            prints: "entry of UID\nUID GROUPS PROJECT\n",
            user: root,
        },
        Popular {
            name: "golang:1.22",
            layout: Layout::Merged,
            users: NOBODY,
            files: &[("usr/local/go/bin/go", "#!/bin/sh\necho $GOPATH $(pwd)\n")],
            config: || {
                json!({ "Cmd": ["go"], "WorkingDir": "/go", "Env": ["GOPATH=/go",
                    "PATH=/go/bin:/usr/local/go/bin:/usr/bin:/bin"] })
            },
            prints: "/go PROJECT\n",
            user: root,
        },
        Popular {
            name: "rust:1",
            layout: Layout::Merged,
            users: NOBODY,
            files: &[("usr/local/cargo/bin/cargo", "#!/bin/sh\necho $CARGO_HOME\n")],
            config: || {
                json!({ "Cmd": ["cargo"], "Env": ["CARGO_HOME=/usr/local/cargo",
                    "PATH=/usr/local/cargo/bin:/usr/bin:/bin"] })
            },
            prints: "/usr/local/cargo\n",
            user: root,
        },
        Popular {
            name: "eclipse-temurin:21",
            layout: Layout::Merged,
            users: NOBODY,
            files: &[("__cacert_entrypoint.sh", ENTRY), ("opt/java/openjdk/bin/jshell", WHO)],
            config: || {
                json!({ "Entrypoint": ["/__cacert_entrypoint.sh"], "Cmd": ["jshell"],
                    "Env": ["JAVA_HOME=/opt/java/openjdk", "PATH=/opt/java/openjdk/bin:/usr/bin:/bin"] })
            },
            prints: "entry of UID\nUID GROUPS PROJECT\n",
            user: root,
        },
        Popular {
            name: "php:8-cli",
            layout: Layout::Merged,
            users: ("www-data:x:33:33::/var/www:/usr/sbin/nologin\n", "www-data:x:33:\n"),
            files: &[
                ("usr/local/bin/docker-php-entrypoint", ENTRY),
                ("usr/local/bin/php", "#!/bin/sh\necho php $*\n"),
            ],
            config: || json!({ "Entrypoint": ["docker-php-entrypoint"], "Cmd": ["php", "-a"] }),
            prints: "entry of UID\nphp -a\n",
            user: root,
        },
        Popular {
            name: "ruby:3",
            layout: Layout::Merged,
            users: NOBODY,
            files: &[("usr/local/bin/irb", "#!/bin/sh\necho $GEM_HOME\n")],
            config: || json!({ "Cmd": ["irb"], "Env": ["GEM_HOME=/usr/local/bundle", "PATH=/usr/local/bin:/usr/bin:/bin"] }),
            prints: "/usr/local/bundle\n",
            user: root,
        },
        Popular {
            name: "httpd:2.4",
            layout: Layout::Merged,
            users: ("www-data:x:33:33::/var/www:/usr/sbin/nologin\n", "www-data:x:33:\n"),
            files: &[("usr/local/bin/httpd-foreground", WHO)],
            config: || {
                json!({ "Cmd": ["httpd-foreground"], "WorkingDir": "/usr/local/apache2",
                    "StopSignal": "SIGWINCH" })
            },
            prints: "UID GROUPS PROJECT\n",
            user: root,
        },
        Popular {
            name: "mysql:8",
            layout: Layout::Merged,
            users: ("mysql:x:999:999::/var/lib/mysql:/bin/bash\n", "mysql:x:999:\n"),
            files: &[
                ("usr/local/bin/docker-entrypoint.sh", ENTRY),
                ("usr/sbin/mysqld", "#!/bin/sh\necho mysqld $*\n"),
            ],
            config: || {
                json!({ "Entrypoint": ["docker-entrypoint.sh"], "Cmd": ["mysqld"],
                    "Volumes": { "/var/lib/mysql": {} } })
            },
            prints: "entry of UID\nmysqld\n",
            user: root,
        },
        Popular {
            name: "mongo:7",
            layout: Layout::Merged,
            users: ("mongodb:x:999:999::/data/db:/bin/sh\n", "mongodb:x:999:\n"),
            files: &[
                ("usr/local/bin/docker-entrypoint.sh", ENTRY),
                ("usr/bin/mongod", "#!/bin/sh\nls -d /data/db /data/configdb\n"),
            ],
            config: || {
                json!({ "Entrypoint": ["docker-entrypoint.sh"], "Cmd": ["mongod"],
                    "Volumes": { "/data/db": {}, "/data/configdb": {} }, "Env": ["HOME=/data/db"] })
            },
            prints: "entry of UID\n/data/configdb\n/data/db\n",
            user: root,
        },
        Popular {
            name: "elasticsearch:8.14.0",
            layout: Layout::Merged,
            users: (
                "elasticsearch:x:1000:1000::/usr/share/elasticsearch:/bin/bash\n",
                "elasticsearch:x:1000:\n",
            ),
            files: &[
                ("usr/local/bin/docker-entrypoint.sh", ENTRY),
                ("usr/local/bin/eswrapper", WHO),
            ],
            config: || {
                json!({ "User": "1000:0", "WorkingDir": "/usr/share/elasticsearch",
                    "Entrypoint": ["/bin/sh", "/usr/local/bin/docker-entrypoint.sh"], "Cmd": ["eswrapper"] })
            },
            prints: "entry of UID\nUID GROUPS PROJECT\n",
            user: (1000, "0"),
        },
        Popular {
            name: "grafana/grafana:11",
            layout: Layout::Musl,
            users: ("grafana:x:472:0::/home/grafana:/sbin/nologin\n", ""),
            files: &[("run.sh", WHO)],
            config: || json!({ "User": "472", "WorkingDir": "/usr/share/grafana", "Entrypoint": ["/run.sh"] }),
            prints: "UID GROUPS PROJECT\n",
            user: (472, "0"),
        },
        Popular {
            name: "traefik:v3",
            layout: Layout::NoShell,
            users: NOBODY,
            files: &[],
            config: || json!({ "Entrypoint": ["/app/busybox", "echo"], "Cmd": ["traefik"] }),
            prints: "traefik\n",
            user: root,
        },
        Popular {
            name: "hello-world:latest",
            layout: Layout::Scratch,
            users: NOBODY,
            files: &[],
            config: || json!({ "Cmd": ["/busybox", "echo", "Hello from a sandbox!"] }),
            prints: "Hello from a sandbox!\n",
            user: root,
        },
    ]
}

fn layers(image: &Popular, shell: &[u8]) -> Vec<Layer> {
    let (users, groups) = image.users;
    let users = format!("root:x:0:0:root:/root:/bin/sh\n{users}");
    let groups = format!("root:x:0:\n{groups}");
    let first = match image.layout {
        Layout::Musl => base(shell, "bin"),
        Layout::Merged => base(shell, "usr/bin").link("bin", "usr/bin").link("sbin", "usr/sbin"),
        Layout::NoShell => Layer::default().directory("app").program("app/busybox", shell),
        Layout::Scratch => return vec![Layer::default().program("busybox", shell)],
    };
    let listed =
        Layer::default().file("etc/passwd", users.as_bytes()).file("etc/group", groups.as_bytes());
    let files =
        image.files.iter().fold(listed, |layer, (name, content)| match content.starts_with("#!") {
            true => layer.program(name, content.as_bytes()),
            false => layer.file(name, content.as_bytes()),
        });
    vec![first, files]
}

fn each_popular_layout_runs_and_is_a_sandbox(world: &World) {
    let Some(shell) = busybox("images::popular") else { return };
    let all = popular();
    assert_eq!(all.len(), 21);
    let own = world.identity.uid();
    for image in all {
        import(world, image.name, layers(&image, &shell), (image.config)());
        let (user, groups) = match own {
            0 => (image.user.0.to_string(), image.user.1.to_owned()),
            own => (own.to_string(), own.to_string()),
        };
        let expected = image.prints.replace("UID", &user).replace("GROUPS", &groups);
        let expected = expected.replace("PROJECT", world.project.to_str().unwrap());
        let words = ["run", "--discard", "--pull", "never", "--image", image.name];
        let ran = world.stockade(&words).finish();
        assert_eq!(ran.stdout, expected, "{}: {ran}", image.name);
        ran.succeeds();

        let program = match image.layout {
            Layout::Musl | Layout::Merged => "/bin/busybox",
            Layout::NoShell => "/app/busybox",
            Layout::Scratch => "/busybox",
        };
        let made = world.stockade(&["create", "--image", image.name, "--pull", "never"]).finish();
        let id = made.succeeds().stdout.trim().to_owned();
        let exec = |words: &[&str]| {
            let words = [&["exec", &id, "--", program], words].concat();
            world.stockade(&words).finish()
        };
        assert_eq!(exec(&["id", "-u"]).stdout.trim(), user, "{}", image.name);
        assert_eq!(exec(&["id", "-G"]).stdout.trim(), groups, "{}", image.name);
        let config = (image.config)();
        let directory = config["WorkingDir"].as_str().unwrap_or("/");
        assert_eq!(exec(&["pwd"]).stdout.trim(), directory, "{}", image.name);
        for volume in config["Volumes"].as_object().into_iter().flat_map(|all| all.keys()) {
            exec(&["ls", "-d", volume]).succeeds();
        }
        let shown = world.stockade(&["show", &id, "--json"]).finish().json();
        let recorded = shown["image"].as_str().unwrap();
        assert!(recorded.starts_with(image.name) && recorded.contains("@sha256:"), "{recorded}");
        world.stockade(&["kill", &id]).finish().succeeds();
    }
}

as_root_and_as_user! {
    each_popular_layout_runs_and_is_a_sandbox,
}
