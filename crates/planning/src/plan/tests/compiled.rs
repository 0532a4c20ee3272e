//! Releases without sources: which compiled package a group gets, and what is refused before anything is planned.

use super::jobs::{Hashed, release};
use super::*;
use crate::desired::{Export, Wanted, resolve_export, stemcell_of};
use crate::records::CompilationKey;
use crate::software::CompiledFor;

const CLOUD_THAT_COMPILES: &str = "compilation: {workers: 2, network: n, az: z1, vm_type: small}\n";

fn without_sources() -> ReleaseRecord {
    let mut release = release("1");
    release.packages.iter_mut().for_each(|package| package.source = None);
    release
}

/// The packages of the job `app`, compiled for these stemcells.
fn compiled(stemcells: &[(&str, &str)]) -> BTreeSet<CompilationKey> {
    let key = |package: &str, dependency_key: &str, (os, stemcell): (&str, &str)| CompilationKey {
        release: "web".into(),
        package: package.into(),
        version: format!("fp-{package}"),
        os: os.into(),
        stemcell: stemcell.into(),
        dependency_key: dependency_key.into(),
    };
    let both = |stemcell| [key("app", r#"[["base","fp-base"]]"#, stemcell), key("base", "[]", stemcell)];
    stemcells.iter().flat_map(|stemcell| both(*stemcell)).collect()
}

fn document(exported_from: &str, stemcell: &str) -> Document {
    let text = format!(
        "name: law\nreleases: [{{name: web, version: 1{exported_from}}}]\n\
         stemcells: [{{alias: one, os: os, version: '{stemcell}'}}]\ninstance_groups:\n\
         - {{name: g, instances: 1, azs: [z1], vm_type: small, stemcell: one, networks: [{{name: n}}], \
         jobs: [{{name: app, release: web}}]}}\n"
    );
    Document::parse(&text).unwrap()
}

fn deployed(release: &ReleaseRecord, compiled: &BTreeSet<CompilationKey>, document: &Document) -> (Desired, Findings) {
    let cloud = format!("{CLOUD}{CLOUD_THAT_COMPILES}");
    let others = BTreeMap::new();
    let releases = std::slice::from_ref(release);
    read_compiled(&[config("cloud", "c", &cloud)], document, (releases, compiled), LinksFrom::Manifest(&others))
}

/// For which stemcell each package comes, where that is not the group's own.
fn taken(desired: &Desired) -> Vec<Option<String>> {
    let software = desired.groups[0].software.as_ref().unwrap();
    let slug = |from: &CompiledFor| format!("{}/{}", from.os, from.version);
    software.packages.iter().map(|package| package.compiled_for.as_ref().map(slug)).collect()
}

fn compiles(desired: &Desired, compiled: &BTreeSet<CompilationKey>) -> usize {
    let current = Current { compiled: compiled.clone(), ..nothing() };
    let mut findings = Findings::new();
    let plan = plan(desired, &current, &PlanOptions::default(), &Hashed, &mut ids(&current), &mut findings);
    assert!(findings.is_clean(), "{findings}");
    plan.compilation.map_or(0, |plan| plan.packages.len())
}

#[test]
fn a_package_without_source_comes_from_the_newest_stemcell_of_the_line() {
    let (own, line) = (("os", "1"), [("os", "1.9"), ("os", "1.10"), ("os", "2.99"), ("other", "1.11")]);
    let exact = compiled(&[own, line[0], line[1], line[2], line[3]]);
    let (desired, findings) = deployed(&without_sources(), &exact, &document("", "1"));
    assert!(findings.is_clean(), "{findings}");
    assert_eq!((taken(&desired), compiles(&desired, &exact)), (vec![None, None], 0), "its own stemcell comes first");

    let others = compiled(&line);
    let (desired, findings) = deployed(&without_sources(), &others, &document("", "1"));
    assert!(findings.is_clean(), "{findings}");
    let newest = Some("os/1.10".to_owned());
    assert_eq!((taken(&desired), compiles(&desired, &others)), (vec![newest.clone(), newest], 0));

    let (desired, findings) = deployed(&release("1"), &others, &document("", "1"));
    assert!(findings.is_clean(), "{findings}");
    assert_eq!((taken(&desired), compiles(&desired, &others)), (vec![None, None], 2), "with its source it is compiled");
}

#[test]
fn what_is_neither_source_nor_compiled_is_refused_with_package_and_stemcell() {
    for known in [compiled(&[]), compiled(&[("os", "2"), ("other", "1")])] {
        let (_, findings) = deployed(&without_sources(), &known, &document("", "1"));
        assert_eq!(findings.code(), Some(60001), "{findings}");
        let said = findings.to_string();
        assert!(
            said.contains(
                "Can't use release 'web/1'. It references packages without source code and are not compiled against stemcell \
                 's/1':\n - 'app/fp-app'\n - 'base/fp-base'\nupload the release with its sources, or compiled for os/1"
            ),
            "{said}"
        );
    }
    // Compiled with another version of what it needs, it is another package.
    let mut other = compiled(&[("os", "1")]);
    other.retain(|key| key.package == "base");
    other.insert(CompilationKey {
        dependency_key: r#"[["base","old"]]"#.into(),
        package: "app".into(),
        version: "fp-app".into(),
        ..other.first().unwrap().clone()
    });
    let (_, findings) = deployed(&without_sources(), &other, &document("", "1"));
    assert!(findings.to_string().contains("'app/fp-app'") && !findings.to_string().contains("'base/"), "{findings}");
}

#[test]
fn exported_from_names_the_stemcells_that_packages_are_compiled_for() {
    let known = compiled(&[("os", "1"), ("os", "1.9")]);
    let from = |version: &str| document(&format!(", exported_from: [{{os: os, version: '{version}'}}]"), "1");
    // Also where there is a source, and a package for the very stemcell.
    let (desired, findings) = deployed(&release("1"), &known, &from("1.9"));
    assert!(findings.is_clean(), "{findings}");
    let chosen = Some("os/1.9".to_owned());
    assert_eq!((taken(&desired), compiles(&desired, &known)), (vec![chosen.clone(), chosen], 0));

    let (_, findings) = deployed(&release("1"), &known, &from("1.10"));
    assert_eq!(findings.code(), Some(60003), "{findings}");
    let words = "Can't use release 'web/1':\nPackages must be exported from stemcell 'os/1.10', but some packages are not compiled \
        for this stemcell:\n - 'app/fp-app'\n - 'base/fp-base'";
    assert!(findings.to_string().contains(words), "{findings}");

    let (_, findings) = deployed(&release("1"), &known, &from("2.1"));
    assert_eq!(findings.code(), Some(80015), "{findings}");
    let words = "Invalid release detected in instance group 'g' using stemcell 's/1': release 'web' must be exported from stemcell \
        's/1'. Release 'web' is exported from: 'os/2.1'.";
    assert!(findings.to_string().contains(words), "{findings}");
    for wrong in [", exported_from: os/1", ", exported_from: [{os: os}]", ", exported_from: [7]"] {
        let (_, findings) = deployed(&release("1"), &known, &document(wrong, "1"));
        assert!(findings.to_string().contains("releases[0].exported_from"), "{findings}");
    }
}

fn exported(
    release: &ReleaseRecord,
    jobs: &[String],
    compiled: &BTreeSet<CompilationKey>,
    cloud: &str,
) -> (Plan, Findings) {
    let mut findings = Findings::new();
    let Configs { cloud, runtime, cpis } = Configs::read(&[config("cloud", "c", cloud)], &mut findings);
    let manifest = DeploymentManifest::read(&document("", "1"), &mut findings);
    let uploaded = stemcells();
    let wanted = Wanted {
        manifest: &manifest,
        cloud: &cloud,
        runtime: &runtime,
        cpis: &cpis,
        stemcells: &uploaded,
        releases: std::slice::from_ref(release),
        compiled,
        teams: &[],
        links: LinksFrom::Records,
        names: Default::default(),
    };
    let export = Export { release, jobs, stemcells: stemcell_of("os", "1.9", &uploaded).unwrap() };
    let desired = resolve_export(wanted, export, &mut findings);
    let current = Current { compiled: compiled.clone(), ..nothing() };
    let plan = plan_compilation(&desired, &current, &mut ids(&current), &mut findings);
    (plan, findings)
}

#[test]
fn an_export_compiles_what_is_missing_for_its_stemcell_and_plans_nothing_else() {
    let cloud = format!("{CLOUD}{CLOUD_THAT_COMPILES}");
    let names = |plan: &Plan| -> Vec<String> {
        plan.compilation
            .iter()
            .flat_map(|plan| &plan.packages)
            .map(|it| format!("{} for {}", it.package.name, it.version))
            .collect()
    };
    let (plan, findings) = exported(&release("1"), &[], &compiled(&[("os", "1")]), &cloud);
    assert!(findings.is_clean(), "{findings}");
    assert_eq!(names(&plan), ["base for 1.9", "app for 1.9"]);
    assert!(plan.groups.is_empty() && plan.removed.is_empty() && plan.software.is_empty());
    let (plan, _) = exported(&release("1"), &["other".into()], &compiled(&[]), &cloud);
    assert_eq!(names(&plan), Vec::<String>::new(), "the job needs no package");
    let (plan, findings) = exported(&release("1"), &[], &compiled(&[("os", "1.9")]), CLOUD);
    assert!(findings.is_clean() && plan.compilation.is_none(), "nothing is missing, so nobody asks where: {findings}");
    let (_, findings) = exported(&release("1"), &[], &compiled(&[]), CLOUD);
    assert!(findings.to_string().contains("the cloud config does not say where"), "{findings}");
    let (_, findings) = exported(&release("1"), &["nobody".into()], &compiled(&[]), &cloud);
    assert!(
        findings.to_string().contains("Job 'nobody' for release 'web/1' doesn't exist; it has app, other"),
        "{findings}"
    );
    let (_, findings) = exported(&without_sources(), &[], &compiled(&[]), &cloud);
    assert_eq!(findings.code(), Some(60001), "{findings}");
    assert!(
        stemcell_of("os", "7", &stemcells()).unwrap_err().contains("Stemcell version '7' for OS 'os' doesn't exist")
    );
}
