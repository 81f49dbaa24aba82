//! Services that run something for every change.
//! Patterns are explained in the parent module.

use super::{Family, family};
use crate::manifest::ExecutedBy::Ci;

pub(super) const FAMILIES: &[Family] = &[
    family(Ci, "https://docs.github.com/en/actions", &[".github/"]),
    family(
        Ci,
        "https://docs.gitlab.com/ci/yaml/",
        &[".gitlab-ci*", ".gitlab/", "*.gitlab-ci.yml", "*.gitlab-ci.yaml"],
    ),
    family(
        Ci,
        "https://docs.gitea.com/usage/actions/overview",
        &[".gitea/", ".forgejo/", ".gogs/"],
    ),
    family(Ci, "https://circleci.com/docs/configuration-reference/", &[".circleci/", "circle.yml"]),
    family(
        Ci,
        "https://buildkite.com/docs/pipelines",
        &[".buildkite/", "buildkite.yml", "buildkite.yaml"],
    ),
    family(
        Ci,
        "https://learn.microsoft.com/azure/devops/pipelines/",
        &[
            "azure-pipelines*",
            ".azure-pipelines/",
            ".azuredevops/",
            ".azure-pipelines*",
            ".pipelines/",
            ".vsts-ci.yml",
        ],
    ),
    family(
        Ci,
        "https://www.jenkins.io/doc/book/pipeline/jenkinsfile/",
        &["jenkinsfile", "jenkinsfile.*", "*.jenkinsfile", "jenkinsfile-*", ".jenkins/"],
    ),
    family(Ci, "https://docs.travis-ci.com/", &[".travis*", ".travis/"]),
    family(
        Ci,
        "https://www.appveyor.com/docs/",
        &["appveyor*.yml", ".appveyor*.yml", "appveyor*.yaml", ".appveyor/"],
    ),
    family(
        Ci,
        "https://docs.drone.io/",
        &[".drone*", ".harness/", ".woodpecker*", ".woodpecker/", ".crow*"],
    ),
    family(Ci, "https://support.atlassian.com/bitbucket-cloud/docs/", &["bitbucket-pipelines*"]),
    family(Ci, "https://cirrus-ci.org/guide/writing-tasks/", &[".cirrus*"]),
    family(
        Ci,
        "https://man.sr.ht/builds.sr.ht/",
        &[".build.yml", ".build.yaml", ".builds/", ".build*.yml"],
    ),
    family(
        Ci,
        "https://docs.semaphoreci.com/",
        &[".semaphore/", ".teamcity/", ".ci/", ".cicd/", ".tekton/", ".concourse/"],
    ),
    family(
        Ci,
        "https://docs.taskcluster.net/",
        &[".taskcluster.yml", ".taskcluster/", "taskcluster/"],
    ),
    family(Ci, "https://zuul-ci.org/docs/", &[".zuul.*", "zuul.yaml", "zuul.d/", ".zuul.d/"]),
    family(Ci, "https://docs.prow.k8s.io/", &[".prow*", ".prow/"]),
    family(
        Ci,
        "https://docs.aws.amazon.com/codebuild/",
        &[
            "buildspec*.yml",
            "buildspec*.yaml",
            "appspec.yml",
            "amplify.yml",
            ".ebextensions/",
            ".platform/",
        ],
    ),
    family(
        Ci,
        "https://cloud.google.com/build/docs/",
        &["cloudbuild*.yaml", "cloudbuild*.yml", "cloudbuild*.json", ".kokoro/", ".cloudbuild/"],
    ),
    family(
        Ci,
        "https://docs.readthedocs.com/platform/stable/config-file/v2.html",
        &[".readthedocs*", "readthedocs.y*ml"],
    ),
    family(
        Ci,
        "https://docs.netlify.com/configure-builds/file-based-configuration/",
        &["netlify.toml", ".netlify/"],
    ),
    family(
        Ci,
        "https://vercel.com/docs/project-configuration",
        &["vercel.json", "vercel.ts", "now.json", ".vercel/"],
    ),
    family(
        Ci,
        "https://render.com/docs/blueprint-spec",
        &[
            "render.yaml",
            "railway.json",
            "railway.toml",
            "fly.toml",
            "nixpacks.toml",
            "railpack.json",
        ],
    ),
    family(
        Ci,
        "https://devcenter.heroku.com/articles/heroku-yml-build-manifest",
        &["heroku.yml", "procfile", "procfile.*", ".buildpacks"],
    ),
    family(
        Ci,
        "https://docs.platform.sh/",
        &[".platform.app.yaml", ".upsun/", ".lagoon.yml", "pantheon.yml"],
    ),
    family(
        Ci,
        "https://developers.cloudflare.com/workers/ci-cd/builds/",
        &["wrangler.toml", "wrangler.json", "wrangler.jsonc"],
    ),
    family(
        Ci,
        "https://docs.codemagic.io/",
        &["codemagic.yaml", "bitrise.yml", ".bitrise.yml", "bitrise.yaml", ".bitrise.*"],
    ),
    family(
        Ci,
        "https://developer.apple.com/documentation/xcode/writing-custom-build-scripts",
        &[
            "ci_scripts/",
            "appcenter-post-clone.sh",
            "appcenter-pre-build.sh",
            "appcenter-post-build.sh",
        ],
    ),
    family(
        Ci,
        "https://docs.cloudbees.com/docs/cloudbees-codeship/",
        &[
            "codeship-*",
            "wercker.yml",
            "shippable.yml",
            ".shippable.yml",
            "buddy.yml",
            "buddy.yaml",
            ".buddy/",
        ],
    ),
    family(
        Ci,
        "https://packit.dev/docs/configuration",
        &[".packit.*", "packit.yaml", "packit.yml", ".copr/", ".obs/", ".tito/"],
    ),
    family(
        Ci,
        "https://docs.renovatebot.com/configuration-options/",
        &["renovate.json*", ".renovaterc*", ".mergify.yml", "dependabot.yml", ".dependabot/"],
    ),
    family(
        Ci,
        "https://go-vela.github.io/docs/",
        &[
            ".vela.*",
            ".onedev-buildspec.yml",
            ".screwdriver.yaml",
            "screwdriver.yaml",
            ".spacelift/",
            "atlantis.yaml",
            ".cds/",
        ],
    ),
    // A service that is not known here keeps to one of these forms.
    family(
        Ci,
        "https://www.jenkins.io/doc/book/pipeline-as-code/",
        &[
            ".*-ci.yml",
            ".*-ci.yaml",
            ".*-ci.json",
            ".*-ci.toml",
            "*-ci.yml",
            "*-ci.yaml",
            ".*ci.yml",
            ".*ci.yaml",
            "*-pipeline.yml",
            "*-pipeline.yaml",
            "*-pipelines.yml",
            "*-pipelines.yaml",
            ".*pipeline*.yml",
            ".*pipeline*.yaml",
            ".*ci/",
            ".*/pipelines/",
            ".*/workflows/",
            ".*/pipeline.y*ml",
            ".*/workflow.y*ml",
        ],
    ),
];
