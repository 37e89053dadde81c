//! Nodes against a model: laying out, searching, changing, and bytes that nobody laid out.

use std::collections::BTreeMap;

use super::node::{Change, Node};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys that share much, little or nothing, some of them beginning with others.
fn key(random: &mut fastrand::Rng, prefix: &[u8]) -> Vec<u8> {
    let len = [0, 1, 2, 3, 8, 200][random.usize(..6)];
    let tail = (0..len).map(|_| random.u8(..3) * 100).collect::<Vec<_>>();
    [prefix, &tail].concat()
}

fn value(random: &mut fastrand::Rng) -> Vec<u8> {
    vec![random.u8(..); [0, 1, 20, 300][random.usize(..4)]]
}

fn laid_out(model: &Model) -> Node {
    let entries: Vec<(&[u8], &[u8])> = model.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    Node::parse(Node::build(0, entries.iter().copied()), 0).unwrap()
}

fn contents(node: &Node) -> Model {
    (0..node.len()).map(|index| (node.key(index), node.value(index).to_vec())).collect()
}

#[test]
fn a_node_finds_what_was_put_in() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..300 {
        let prefix = &b"prefix"[..random.usize(..7)];
        let count = random.usize(..60);
        let model: Model = (0..count).map(|_| (key(&mut random, prefix), value(&mut random))).collect();
        let node = laid_out(&model);
        assert_eq!(contents(&node), model);
        for _ in 0..100 {
            let shared = random.usize(..prefix.len() + 1);
            let wanted = key(&mut random, &prefix[..shared]);
            let below = model.range(..wanted.clone()).count();
            match model.get(&wanted) {
                Some(value) => {
                    assert_eq!(node.find(&wanted), Ok(below));
                    assert_eq!(node.value(below), value);
                }
                None => assert_eq!(node.find(&wanted), Err(below)),
            }
        }
    }
}

#[test]
fn a_changed_leaf_is_what_its_entries_would_give() {
    let mut random = fastrand::Rng::with_seed(2);
    let mut patched = 0;
    for _ in 0..2000 {
        let prefix = &b"prefix"[..random.usize(..7)];
        let count = random.usize(1..40);
        let mut model: Model = (0..count).map(|_| (key(&mut random, prefix), value(&mut random))).collect();
        let node = laid_out(&model);
        let mut changes: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        for _ in 0..random.usize(1..10) {
            let key = match random.bool() {
                true => model.keys().nth(random.usize(..model.len())).unwrap().clone(),
                false => key(&mut random, prefix),
            };
            changes.insert(key, random.bool().then(|| value(&mut random)));
        }
        let list: Vec<Change<'_>> = changes.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
        let result = node.patch(&list, 0..4000);
        for (key, value) in &changes {
            match value {
                Some(value) => drop(model.insert(key.clone(), value.clone())),
                None => drop(model.remove(key)),
            }
        }
        if let Some(bytes) = result {
            patched += 1;
            assert!(bytes.len() < 4000);
            assert_eq!(contents(&Node::parse(bytes, 0).unwrap()), model);
        }
    }
    assert!(patched > 500, "only {patched}");
}

#[test]
fn no_bytes_make_a_node_panic() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let count = random.usize(..20);
        let model: Model = (0..count).map(|_| (key(&mut random, b"k"), value(&mut random))).collect();
        let mut bytes = laid_out(&model).bytes().to_vec();
        for _ in 0..random.usize(..4) {
            let at = random.usize(..bytes.len().min(200));
            bytes[at] = random.u8(..);
        }
        bytes.truncate(random.usize(..bytes.len() * 3));
        let Ok(node) = Node::parse(bytes, 0) else { continue };
        accepted += 1;
        for index in 0..node.len() {
            let key = node.key(index);
            let _ = (node.find(&key), node.child(index), node.value(index));
            let _ = node.patch(&[(&key, None)], 0..5000);
        }
        let _ = (node.child_of(b"key"), node.lower_bound(b"k"));
    }
    assert!(accepted > 1000, "only {accepted}");
}
