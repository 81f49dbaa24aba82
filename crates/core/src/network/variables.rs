//! Environment variables that programs obey: the loader, the C library, shells, interpreters, git,
//! package managers and compilers take a path, options or code from them. A secret must not have
//! the name of one. Its placeholder would change what every program inside does, and the value is
//! then not one that only a host uses.
//!
//! Each family has its source. Names are compared without case, because some programs do so.

/// The variables of one program or group of programs.
#[derive(Debug, PartialEq, Eq)]
pub struct Family {
    /// Who obeys them.
    pub program: &'static str,
    /// Where they are documented.
    pub source: &'static str,
    /// Names, separated by spaces.
    names: &'static str,
    /// Beginnings of names. Under them, names of credentials are allowed ([`CREDENTIALS`]), except
    /// where the programs take no credentials ([`Self::takes_credentials`]).
    prefixes: &'static str,
}

/// The program of the family that takes no credentials: every variable with its prefixes is its own.
const LOADER: &str = "the dynamic loader";

/// The ends of names that a program takes as a credential and as nothing else.
const CREDENTIALS: &[&str] = &["TOKEN", "PASSWORD", "SECRET", "_AUTH", "API_KEY"];

const fn family(
    program: &'static str,
    source: &'static str,
    names: &'static str,
    prefixes: &'static str,
) -> Family {
    Family { program, source, names, prefixes }
}

/// The table.
pub const FAMILIES: &[Family] = &[
    family(LOADER, "ld.so(8); musl, ldso/dynlink.c", "", "LD_ DYLD_"),
    family(
        "the C library",
        "ld.so(8), \"Secure-execution mode\"; glibc, sysdeps/generic/unsecvars.h; resolv.conf(5)",
        "\
         GCONV_PATH GETCONF_DIR GLIBC_TUNABLES HOSTALIASES LANG LANGUAGE LOCALDOMAIN LOCPATH \
         NIS_PATH NLSPATH POSIXLY_CORRECT RES_OPTIONS RESOLV_HOST_CONF TMPDIR TZ TZDIR",
        "LC_ MALLOC_",
    ),
    family(
        "login and terminals",
        "environ(7); terminfo(5); POSIX.1-2024, XBD chapter 8",
        "\
         BROWSER COLUMNS EDITOR HOME LESS LESSCLOSE LESSOPEN LINES LOGNAME MAIL MANPAGER \
         MANPATH MORE OLDPWD PAGER PATH PWD SHELL SYSTEMD_EDITOR SYSTEMD_PAGER TEMP TERM \
         TERMCAP TERMINFO TERMINFO_DIRS TMP USER VISUAL",
        "XDG_",
    ),
    family(
        "shells",
        "bash(1), \"Shell Variables\"; dash(1); zshparam(1); ksh(1); fish(1)",
        "\
         BASHOPTS BASH_ENV BASH_LOADABLES_PATH BASH_XTRACEFD CDPATH ENV EXECIGNORE FCEDIT \
         FIGNORE FPATH GLOBIGNORE GLOBSORT HISTFILE HISTTIMEFORMAT IFS INPUTRC MAILPATH \
         PROMPT_COMMAND PS0 PS1 PS2 PS3 PS4 READNULLCMD NULLCMD SHELLOPTS TIMEFORMAT ZDOTDIR \
         fish_function_path",
        "BASH_FUNC_",
    ),
    family(
        "Python and its tools",
        "docs.python.org/3/using/cmdline.html; pip.pypa.io, \"Configuration\"; docs.astral.sh/uv, \"Environment variables\"",
        "\
         CONDA_EXE CONDA_PREFIX DJANGO_SETTINGS_MODULE FLASK_APP IPYTHONDIR PDM_CONFIG_FILE \
         VIRTUAL_ENV __PYVENV_LAUNCHER__",
        "PYTHON PIP_ PIPENV_ POETRY_ PYTEST_ TOX_ UV_ JUPYTER_",
    ),
    family(
        "Node.js, Deno and Bun",
        "nodejs.org/api/cli.html, \"Environment variables\"; docs.deno.com, \"Environment variables\"; bun.sh/docs",
        "\
         ELECTRON_RUN_AS_NODE NODE_CHANNEL_FD NODE_COMPILE_CACHE NODE_DEBUG \
         NODE_EXTRA_CA_CERTS NODE_ICU_DATA NODE_OPTIONS NODE_PATH NODE_PENDING_DEPRECATION \
         NODE_REDIRECT_WARNINGS NODE_REPL_EXTERNAL_MODULE NODE_REPL_HISTORY NODE_TEST_CONTEXT \
         NODE_TLS_REJECT_UNAUTHORIZED NODE_V8_COVERAGE TS_NODE_PROJECT",
        "BUN_ DENO_ TS_NODE_ UV_",
    ),
    family(
        "npm, yarn, pnpm and corepack",
        "docs.npmjs.com/cli, \"config\"; yarnpkg.com/configuration/yarnrc; pnpm.io/settings; nodejs/corepack",
        "",
        "NPM_CONFIG_ PNPM_ YARN_ COREPACK_",
    ),
    family(
        "Perl, Ruby, PHP, Lua and Tcl",
        "perlrun(1); ruby(1); rubygems.org, \"Command reference\"; bundle-config(1); php(1); getcomposer.org/doc/03-cli.md; lua(1); tclsh(1)",
        "\
         BUNDLER_ORIG_PATH GEM_HOME GEM_PATH GEMRC LUA_CPATH LUA_INIT LUA_PATH PERLLIB PHPRC \
         PHP_INI_SCAN_DIR RUBYGEMS_GEMDEPS RUBYLIB RUBYOPT RUBYPATH RUBYSHELL TCLLIBPATH",
        "BUNDLE_ COMPOSER LUA_CPATH_ LUA_INIT_ LUA_PATH_ PERL5 PERL_ RUBY_",
    ),
    family(
        "Java and its build tools",
        "JVM Tool Interface, \"JAVA_TOOL_OPTIONS\"; mvn(1); docs.gradle.org, \"Build environment\"; sbt; ant",
        "\
         ANT_ARGS ANT_HOME ANT_OPTS CLASSPATH GRADLE_HOME GRADLE_OPTS GRADLE_USER_HOME \
         IBM_JAVA_OPTIONS JAVA_HOME JAVA_OPTS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS \
         JDK_JAVAC_OPTIONS JVM_OPTS M2_HOME SBT_OPTS _JAVA_OPTIONS",
        "MAVEN_",
    ),
    family(
        ".NET",
        "learn.microsoft.com/dotnet/core/tools/dotnet-environment-variables; NuGet CLI environment variables",
        "MSBUILDSDKSPATH",
        "COMPLUS_ CORECLR_ COR_ DOTNET_ MSBUILD NUGET_",
    ),
    family(
        "Rust",
        "doc.rust-lang.org/cargo/reference/environment-variables.html; rust-lang.github.io/rustup/environment-variables.html",
        "\
         RUSTC RUSTC_WORKSPACE_WRAPPER RUSTC_WRAPPER RUSTDOC RUSTDOCFLAGS RUSTFLAGS \
         SCCACHE_PATH",
        "CARGO_ RUSTUP_ RUST_",
    ),
    family(
        "Go",
        "`go help environment`; pkg.go.dev/cmd/go",
        "\
         GCCGO GOARCH GOAUTH GOBIN GOCACHE GOCACHEPROG GODEBUG GOENV GOEXPERIMENT GOFLAGS \
         GOINSECURE GOMODCACHE GONOPROXY GONOSUMDB GOOS GOPATH GOPRIVATE GOPROXY GOROOT \
         GOSUMDB GOTMPDIR GOTOOLCHAIN GOTOOLDIR GOTRACEBACK GOVCS GOWORK",
        "CGO_",
    ),
    family(
        "Erlang, Elixir, Haskell, Julia, R and Emacs",
        "erl(1); hexdocs.pm/mix; ghc users guide; docs.julialang.org, \"Environment Variables\"; R, ?Startup; emacs(1)",
        "\
         ELIXIR_ERL_OPTIONS EMACSLOADPATH EMACSPATH GHC_ENVIRONMENT GHC_PACKAGE_PATH R_ENVIRON \
         R_ENVIRON_USER R_HOME R_LIBS R_LIBS_SITE R_LIBS_USER R_PROFILE R_PROFILE_USER",
        "ERL_ HEX_ JULIA_ MIX_ STACK_",
    ),
    family(
        "git",
        "git(1), \"Environment Variables\"; gitcredentials(7)",
        "SSH_ASKPASS SSH_ASKPASS_REQUIRE",
        "GIT_",
    ),
    family(
        "other version control",
        "hg(1); svn(1); git-lfs-config(5); gh(1), \"environment\"",
        "\
         CVS_RSH GH_BROWSER GH_CONFIG_DIR GH_EDITOR GH_HOST GH_PAGER GH_PATH HGEDITOR HGMERGE \
         HGPLAIN HGRCPATH SVN_EDITOR SVN_SSH",
        "",
    ),
    family(
        "compilers and make",
        "make(1); gcc(1), \"Environment Variables\"; cmake-env-variables(7); pkg-config(1); ccache(1)",
        "\
         AR AS ASFLAGS CC CFLAGS COMPILER_PATH CPATH CPP CPPFLAGS CPLUS_INCLUDE_PATH CXX \
         CXXFLAGS C_INCLUDE_PATH DESTDIR GCC_EXEC_PREFIX GNUMAKEFLAGS LDFLAGS LIBRARY_PATH \
         MAKE MAKEFILES MAKEFLAGS MAKELEVEL MAKESHELL MFLAGS OBJC_INCLUDE_PATH",
        "CCACHE_ CMAKE_ PKG_CONFIG",
    ),
    family(
        "package managers of systems",
        "apt.conf(5); dpkg(1); brew(1), \"ENVIRONMENT\"; nix.dev, \"Environment variables\"",
        "APT_CONFIG DPKG_ROOT",
        "DEBCONF_ DEB_ DPKG_ HOMEBREW_ NIX_ RPM_",
    ),
    family(
        "network programs and TLS libraries",
        "curl(1), \"ENVIRONMENT\"; wget(1); openssl-env(7); gnutls, \"Environment variables\"; NSS",
        "\
         ALL_PROXY AWS_CA_BUNDLE CURL_CA_BUNDLE CURL_HOME CURL_SSL_BACKEND FTP_PROXY \
         GNUTLS_SYSTEM_PRIORITY_FILE HTTPS_PROXY HTTP_PROXY NO_PROXY OPENSSL_CONF \
         OPENSSL_CONF_INCLUDE OPENSSL_ENGINES OPENSSL_MODULES P11_KIT_MODULE_PATH QLOGDIR \
         REQUESTS_CA_BUNDLE RSYNC_PROXY RSYNC_RSH SSLKEYLOGFILE SSL_CERT_DIR SSL_CERT_FILE \
         SSL_DIR SYSTEM_WGETRC WGETRC",
        "KRB5",
    ),
    family(
        "ssh, GnuPG and sudo",
        "ssh(1); ssh-agent(1); gpg(1); sudo(8)",
        "\
         DISPLAY GNUPGHOME GPG_AGENT_INFO GPG_TTY SSH_AUTH_SOCK SSH_AGENT_PID SUDO_ASKPASS \
         SUDO_EDITOR SUDO_PROMPT",
        "",
    ),
    family(
        "containers and clouds",
        "docs.docker.com, \"Environment variables\"; kubectl; docs.aws.amazon.com/sdkref; cloud.google.com/sdk; learn.microsoft.com/cli/azure",
        "\
         AWS_CONFIG_FILE AWS_CONTAINER_CREDENTIALS_FULL_URI \
         AWS_CONTAINER_CREDENTIALS_RELATIVE_URI AWS_ENDPOINT_URL AWS_PAGER AWS_PROFILE \
         AWS_SHARED_CREDENTIALS_FILE AWS_WEB_IDENTITY_TOKEN_FILE AZURE_CONFIG_DIR \
         BUILDKIT_HOST CLOUDSDK_CONFIG CLOUDSDK_PYTHON CONTAINER_HOST DOCKER_CERT_PATH \
         DOCKER_CLI_PLUGIN_EXTRA_DIRS DOCKER_CONFIG DOCKER_CONTEXT DOCKER_HOST \
         DOCKER_TLS_VERIFY GOOGLE_APPLICATION_CREDENTIALS HELM_PLUGINS KUBECONFIG KUBE_EDITOR",
        "ANSIBLE_ COMPOSE_ TF_CLI_ TF_PLUGIN_",
    ),
    family(
        "desktop libraries and debuggers",
        "GTK, \"Running GTK Applications\"; Qt, QPluginLoader; gdb; AddressSanitizer flags; valgrind(1)",
        "\
         ASAN_OPTIONS DBUS_SESSION_BUS_ADDRESS DBUS_SYSTEM_BUS_ADDRESS DEBUGINFOD_URLS \
         GIO_EXTRA_MODULES GI_TYPELIB_PATH LSAN_OPTIONS MSAN_OPTIONS TSAN_OPTIONS \
         UBSAN_OPTIONS VALGRIND_LIB VALGRIND_OPTS",
        "GTK_ QML_ QT_ GST_PLUGIN_",
    ),
    family("Stockade", "SPECIFICATION.md", "", "STOCKADE_ SMITHERS_"),
];

impl Family {
    /// Whether a name of the family can be that of a credential.
    fn takes_credentials(&self) -> bool {
        self.program != LOADER
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.names.split_ascii_whitespace()
    }

    fn prefixes(&self) -> impl Iterator<Item = &'static str> {
        self.prefixes.split_ascii_whitespace()
    }
}

/// The programs that obey a variable of that name, if there are some.
pub fn obeyed_by(name: &str) -> Option<&'static Family> {
    let name = name.to_ascii_uppercase();
    let is_credential = CREDENTIALS.iter().any(|end| name.ends_with(end));
    FAMILIES.iter().find(|family| {
        let is_prefixed = || family.prefixes().any(|prefix| name.starts_with(prefix));
        family.names().any(|own| own.eq_ignore_ascii_case(&name))
            || (!(is_credential && family.takes_credentials()) && is_prefixed())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_obey_is_found() {
        for name in "\
            LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT ld_preload LD_ACCESS_TOKEN LD_SECRET \
            dyld_insert_password LD_X_API_KEY GCONV_PATH GLIBC_TUNABLES \
            MALLOC_CHECK_ LC_ALL TZ BASH_ENV ENV PS4 PROMPT_COMMAND SHELLOPTS ZDOTDIR IFS \
            CDPATH PATH HOME PYTHONPATH PYTHONSTARTUP PYTHONHOME PYTHONINSPECT PIP_INDEX_URL \
            UV_INDEX_URL NODE_OPTIONS NODE_PATH NODE_EXTRA_CA_CERTS npm_config_registry \
            NPM_CONFIG_SCRIPT_SHELL YARN_RC_FILENAME PERL5LIB PERL5OPT PERL5DB RUBYOPT RUBYLIB \
            GEM_PATH BUNDLE_GEMFILE PHPRC PHP_INI_SCAN_DIR COMPOSER_HOME LUA_INIT LUA_INIT_5_4 \
            JAVA_TOOL_OPTIONS _JAVA_OPTIONS CLASSPATH MAVEN_OPTS GRADLE_OPTS \
            DOTNET_STARTUP_HOOKS CORECLR_PROFILER RUSTC_WRAPPER RUSTFLAGS CARGO_HOME \
            CARGO_BUILD_RUSTC_WRAPPER GOFLAGS GOPROXY CGO_CFLAGS ERL_FLAGS JULIA_LOAD_PATH \
            R_PROFILE_USER GIT_SSH_COMMAND GIT_EXEC_PATH GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 \
            GIT_ASKPASS GIT_SSL_KEY SSH_ASKPASS HGRCPATH MAKEFLAGS CC CMAKE_TOOLCHAIN_FILE \
            PKG_CONFIG_PATH APT_CONFIG NIX_PATH CURL_HOME OPENSSL_CONF SSL_CERT_FILE \
            SSLKEYLOGFILE https_proxy EDITOR PAGER LESSOPEN BROWSER KUBECONFIG DOCKER_HOST \
            QT_PLUGIN_PATH GTK_MODULES STOCKADE_DATA_DIR SSH_AUTH_SOCK TMPDIR TERMINFO"
            .split(' ')
        {
            assert!(obeyed_by(name).is_some(), "{name}");
        }
    }

    #[test]
    fn names_of_credentials_are_free() {
        for name in "\
            API_KEY TOK TOKEN OPENAI_API_KEY ANTHROPIC_API_KEY GITHUB_TOKEN GH_TOKEN \
            GIT_TOKEN GIT_PASSWORD GITLAB_TOKEN NPM_TOKEN NODE_AUTH_TOKEN \
            npm_config__authToken npm_config__auth CARGO_REGISTRY_TOKEN \
            CARGO_REGISTRIES_MINE_TOKEN UV_PUBLISH_TOKEN POETRY_PYPI_TOKEN_PYPI_TOKEN \
            TWINE_PASSWORD HEX_API_KEY HOMEBREW_GITHUB_API_TOKEN AWS_SECRET_ACCESS_KEY \
            AWS_ACCESS_KEY_ID AWS_SESSION_TOKEN DOCKER_PASSWORD STRIPE_SECRET_KEY \
            DATABASE_PASSWORD HF_TOKEN TF_TOKEN_app_terraform_io SLACK_BOT_TOKEN CC_TOKEN \
            GOOGLE_API_KEY"
            .split(' ')
        {
            assert_eq!(obeyed_by(name), None, "{name}");
        }
    }

    #[test]
    fn the_table_has_a_source_for_each_family_and_no_name_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for family in FAMILIES {
            assert!(!family.source.is_empty() && !family.program.is_empty());
            assert!(family.names().chain(family.prefixes()).next().is_some(), "{family:?}");
            for name in family.names() {
                assert!(seen.insert(name), "{name}");
            }
        }
    }
}
