//! Models in safetensors files, whole, in parts and malformed.

mod ground;

use files::{Error, Options, load_safetensors, plan_safetensors};
use ground::{bytes, machine};
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView, serialize};
use std::path::Path;
use std::sync::atomic::AtomicU64;

fn options() -> Options {
    Options { block: 8192, depth: 4, threads: 2, verify: true, ..Options::default() }
}

/// A file of tensors with those names, types and shapes, and random data.
fn model(path: &Path, tensors: &[(&str, Dtype, Vec<usize>)]) -> Vec<Vec<u8>> {
    let data: Vec<Vec<u8>> = tensors
        .iter()
        .enumerate()
        .map(|(n, (_, dtype, shape))| {
            let mut data = bytes(shape.iter().product::<usize>() * dtype.bitsize() / 8 + n);
            data.drain(..n);
            data
        })
        .collect();
    let views = tensors
        .iter()
        .zip(&data)
        .map(|((name, dtype, shape), data)| (*name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    std::fs::write(path, serialize(views, None).unwrap()).unwrap();
    data
}

#[test]
fn every_tensor_is_at_an_aligned_address_with_its_own_bytes() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    let tensors = [
        ("wide", Dtype::F32, vec![100, 70]),
        ("odd", Dtype::U8, vec![3, 7, 11]),
        ("scalar", Dtype::F64, vec![]),
        ("empty", Dtype::BF16, vec![0, 5]),
        ("half", Dtype::BF16, vec![4097]),
    ];
    let data = model(&path, &tensors);
    for given in [path.as_path(), dir.path()] {
        let progress = AtomicU64::new(0);
        let loaded = load_safetensors(&machine, given, &options(), &progress).unwrap();
        assert_eq!(loaded.model.tensors.len(), tensors.len());
        for ((name, dtype, shape), data) in tensors.iter().zip(&data) {
            let (tensor, va) = loaded.tensor(name).unwrap();
            assert_eq!((&tensor.dtype, &tensor.shape), (&format!("{dtype:?}"), shape));
            assert_eq!((va % 256, tensor.bytes), (0, data.len() as u64), "{name}");
            let mut found = vec![0; data.len()];
            loaded.memory[tensor.file].read(tensor.at, &mut found).unwrap();
            assert!(found == *data, "{name}");
        }
        let total = data.iter().map(|d| d.len() as u64).sum();
        assert_eq!((loaded.model.bytes(), loaded.reports[0].verified), (total, Some(total)));
    }
}

#[test]
fn a_model_in_several_files_is_loaded_by_its_index() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let one = model(&dir.path().join("a.safetensors"), &[("x", Dtype::F16, vec![1000])]);
    let two = model(&dir.path().join("b.safetensors"), &[("y", Dtype::I64, vec![3, 3]), ("z", Dtype::BOOL, vec![1])]);
    let index = dir.path().join("model.safetensors.index.json");
    let write = |map: &str| std::fs::write(&index, format!("{{\"metadata\":{{}},\"weight_map\":{map}}}")).unwrap();
    write(r#"{"x":"a.safetensors","y":"b.safetensors","z":"b.safetensors"}"#);
    let loaded = load_safetensors(&machine, dir.path(), &options(), &AtomicU64::new(0)).unwrap();
    for (name, data) in ["x", "y", "z"].into_iter().zip([&one[0], &two[0], &two[1]]) {
        let (tensor, _) = loaded.tensor(name).unwrap();
        let mut found = vec![0; data.len()];
        loaded.memory[tensor.file].read(tensor.at, &mut found).unwrap();
        assert!(found == *data, "{name}");
    }
    for (map, what) in [
        (r#"{"x":"../a.safetensors"}"#, "no name of a file"),
        (r#"{"x":"/etc/passwd"}"#, "no name of a file"),
        (r#"{"x":7}"#, "no text"),
        (r#"{"x":"a.safetensors","w":"a.safetensors"}"#, "in none of its files"),
        ("[]", "no weight_map"),
    ] {
        write(map);
        let error = plan_safetensors(&index).unwrap_err();
        assert!(matches!(error, Error::Tensors { .. }) && error.to_string().contains(what), "{map}: {error}");
    }
    write(r#"{"x":"c.safetensors"}"#);
    assert!(matches!(plan_safetensors(&index), Err(Error::Open { .. })));
    std::fs::copy(dir.path().join("a.safetensors"), dir.path().join("c.safetensors")).unwrap();
    write(r#"{"x":"a.safetensors","X":"c.safetensors"}"#);
    assert!(plan_safetensors(&index).unwrap_err().to_string().contains("twice"));
}

fn refused(file: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    std::fs::write(&path, file).unwrap();
    match plan_safetensors(&path) {
        Err(error @ Error::Tensors { .. }) => {
            assert!(!error.hint().is_empty());
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

fn with_header(header: &str, data: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + data, 7);
    file
}

#[test]
fn headers_that_lie_are_refused() {
    let tensor = |shape: &str, from: u64, to: u64| {
        format!(r#"{{"t":{{"dtype":"F32","shape":{shape},"data_offsets":[{from},{to}]}}}}"#)
    };
    for (file, what) in [
        (vec![], "ends within"),
        (vec![1, 2, 3], "ends within"),
        (u64::MAX.to_le_bytes().to_vec(), "should have"),
        (200_000_000u64.to_le_bytes().to_vec(), "should have"),
        (with_header("{", 0), "its header"),
        (with_header("7", 0), "its header"),
        (with_header(&tensor("[2]", 0, 8), 7), "tells of 8"),
        (with_header(&tensor("[2]", 0, 8), 9), "tells of 8"),
        (with_header(&tensor("[3]", 0, 8), 8), "its header"),
        (with_header(&tensor("[2]", 4, 12), 12), "its header"),
        (with_header(&tensor("[2]", 8, 0), 8), "its header"),
        (with_header(&tensor("[18446744073709551615, 9]", 0, 8), 8), "its header"),
        (with_header(&tensor("[-2]", 0, 8), 8), "its header"),
        (with_header(r#"{"t":{"dtype":"F5","shape":[1],"data_offsets":[0,4]}}"#, 4), "its header"),
    ] {
        let text = refused(&file);
        assert!(text.contains(what), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_file_panics(file in proptest::collection::vec(any::<u8>(), 0..200), length in 0u64..200) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.safetensors");
        let mut short = length.to_le_bytes().to_vec();
        short.extend(&file);
        for file in [&file, &short] {
            std::fs::write(&path, file).unwrap();
            prop_assert!(plan_safetensors(&path).is_err() || length == 0);
        }
    }

    /// One changed byte of a valid header: the result is an error, or tensors within the file.
    #[test]
    fn a_changed_header_is_refused_or_still_sound(at in 0usize..160, to in any::<u8>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.safetensors");
        model(&path, &[("a", Dtype::F32, vec![2, 3]), ("b", Dtype::U8, vec![5])]);
        let mut file = std::fs::read(&path).unwrap();
        let at = at % file.len();
        file[at] = to;
        std::fs::write(&path, &file).unwrap();
        if let Ok(plan) = plan_safetensors(&path) {
            for tensor in &plan.tensors {
                prop_assert!(tensor.offset + tensor.bytes <= file.len() as u64);
                prop_assert!(tensor.at + tensor.bytes <= plan.shards[0].memory);
            }
        }
    }
}

#[test]
fn many_small_tensors_are_loaded_and_senseless_shapes_are_refused() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.safetensors");
    let names: Vec<String> = (0..9000).map(|n| format!("t{n}")).collect();
    let tensors: Vec<_> = names.iter().map(|name| (name.as_str(), Dtype::U8, vec![16])).collect();
    model(&path, &tensors);
    let large = Options { block: 1 << 20, ..options() };
    let loaded = load_safetensors(&machine, &path, &large, &AtomicU64::new(0)).unwrap();
    assert_eq!(loaded.reports[0].verified, Some(9000 * 16));
    assert!(loaded.reports[0].block < 1 << 20);

    model(&path, &[("b\u{1b}[2Jx", Dtype::U8, vec![1; 100_000])]);
    let refused = plan_safetensors(&path).unwrap_err().to_string();
    assert!(refused.contains("100000 dimensions") && !refused.contains('\u{1b}'), "{refused}");

    // The parser repeats unknown text.
    let header = "{\"a\":{\"dtype\":\"\\u001b[2J\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0]].concat()).unwrap();
    let refused = plan_safetensors(&path).unwrap_err().to_string();
    assert!(refused.contains("[2J") && !refused.contains('\u{1b}'), "{refused:?}");
}
