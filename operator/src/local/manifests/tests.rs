//! Which files are read, and which of two documents counts.

use super::*;

#[test]
fn each_file_is_there_once_and_those_that_were_asked_for_come_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["a.yaml", "b.json", "c.yml", "d.txt", ".e.yaml"] {
        std::fs::write(path(name), "").unwrap();
    }
    std::os::unix::fs::symlink("b.json", path("link.yaml")).unwrap();
    std::os::unix::fs::symlink("c.yml", path("z.yaml")).unwrap();
    let (all, beside) = (Take::All, Take::References);
    for (asked, expected) in [
        (&["b.json"][..], &[("b.json", all), ("a.yaml", beside), ("c.yml", beside)][..]),
        (&["link.yaml"], &[("link.yaml", all), ("a.yaml", beside), ("c.yml", beside)]),
        (&["b.json", "./b.json"], &[("b.json", all), ("a.yaml", beside), ("c.yml", beside)]),
        (&["c.yml", "."], &[("c.yml", all), ("./a.yaml", all), ("./b.json", all)]),
        (&[".", "c.yml"], &[("./a.yaml", all), ("./b.json", all), ("./c.yml", all)]),
        (&["c.yml", "a.yaml"], &[("c.yml", all), ("a.yaml", all), ("b.json", beside)]),
        (
            &["gone.yaml", "b.json"],
            &[("gone.yaml", all), ("b.json", all), ("a.yaml", beside), ("c.yml", beside)],
        ),
    ] {
        let reader = Reader::new(asked.iter().map(|name| path(name)).collect());
        let expected: Vec<_> = expected.iter().map(|(name, take)| (path(name), *take)).collect();
        assert_eq!(reader.files(&mut Vec::new(), &mut Vec::new()), expected);
    }
}

#[test]
fn a_look_at_many_files_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number: usize| folder.path().join(format!("{number:04}.yaml"));
    let paths: Vec<_> = (0..MAX_FILES).map(path).collect();
    paths.iter().for_each(|path| std::fs::write(path, "").unwrap());
    let mut reader = Reader::new(paths.clone());
    reader.good = paths.iter().map(|path| (path.clone(), Vec::new())).collect();
    let began = std::time::Instant::now();
    assert_eq!(reader.fingerprint().len(), paths.len());
    assert!(began.elapsed().as_millis() < 1000, "{:?}", began.elapsed());
}

#[test]
fn a_file_with_a_key_twice_is_refused_in_words_for_its_author() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.yaml");
    std::fs::write(&file, "kind: McpServer\nkind: McpServer\n").unwrap();
    let (_, problems) = Reader::new(vec![file]).read();
    let said = problems.iter().map(ToString::to_string).collect::<String>();
    assert!(said.contains("duplicate mapping key: kind") && !said.contains("Policy"), "{said}");
}

fn manifest(title: &str) -> String {
    let manifest = serde_json::json!({
        "apiVersion": "longshore.dev/v1alpha1", "kind": "McpServer", "metadata": {"name": "x"},
        "spec": {
            "source": {"image": "x:1"}, "transport": {"stdio": {}}, "auth": {"none": {}},
            "catalog": {"title": title},
        },
    });
    manifest.to_string()
}

#[test]
fn what_no_manifest_can_be_is_passed_over_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).unwrap();
    write("server.json", &manifest("found"));
    write("tsconfig.json", "// for the compiler\n{}");
    std::fs::write(folder.path().join("names.yaml"), b"name: M\xfcller\n").unwrap();
    write("package-lock.json", &" ".repeat(usize::try_from(MAX_FILE).unwrap() + 1));
    let mut reader = Reader::new(vec![folder.path().to_owned()]);
    let (documents, problems) = reader.read();
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!((documents.servers.len(), documents.unread.len()), (1, 3), "{:?}", documents.unread);

    let said = |reader: &mut Reader| reader.read().1.iter().map(ToString::to_string).collect::<String>();
    let asked = folder.path().join("tsconfig.json");
    let asked = said(&mut Reader::new(vec![folder.path().to_owned(), asked]));
    assert!(asked.contains("tsconfig.json is not JSON"), "{asked}");
    // One that may be one, and one that was one.
    write("keys.yaml", "apiVersion: v1\nstringData: [");
    write("server.json", "{");
    let wide: Vec<u8> = "\u{feff}apiVersion: v1".encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(folder.path().join("wide.yaml"), wide).unwrap();
    let said = said(&mut reader);
    assert!(said.contains("keys.yaml is not YAML") && said.contains("server.json is not JSON"), "{said}");
    assert!(said.contains("wide.yaml is not YAML: it is not in UTF-8"), "{said}");
}

#[test]
fn of_two_about_one_object_the_one_that_was_there_stays() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, title: &str| std::fs::write(folder.path().join(file), manifest(title)).unwrap();
    let mut reader = Reader::new(vec![folder.path().to_owned()]);
    let mut read = || {
        let (documents, problems) = reader.read();
        let titles: Vec<_> =
            documents.servers.iter().map(|it| it.manifest.spec.catalog.title.clone().unwrap()).collect();
        (titles.join(" "), problems.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    };
    write("b.json", "was there");
    assert_eq!(read(), ("was there".to_owned(), String::new()));
    write("a.json", "came later");
    for _ in 0..2 {
        let (titles, problems) = read();
        assert_eq!(titles, "was there");
        assert!(problems.contains("a.json: McpServer default/x is in another"), "{problems}");
    }
    std::fs::remove_file(folder.path().join("b.json")).unwrap();
    assert_eq!(read(), ("came later".to_owned(), String::new()));
}
