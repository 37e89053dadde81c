//! Names whose hashes collide: several in one entry, told apart by their cookies.

use std::ops::ControlFlow;

use txfs_disk::sim::{SimOptions, SimulatedDisk};

use crate::{CreateOptions, Durability, OpenOptions, Paths, ROOT_INO, View, Volume};

fn colliding_volume() -> Volume {
    let disk = SimulatedDisk::new(SimOptions::default());
    let identity = Some(([1; 16], [2; 16]));
    Volume::create_on(disk.as_disk(), &CreateOptions { identity, ..CreateOptions::default() }).unwrap();
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    let mut volume = Volume::open_on(disk.as_disk(), &options).unwrap();
    volume.make_names_collide(0xff);
    volume
}

/// Lists with a new call for every entry, as a program with a tiny buffer does.
fn list_one_by_one(view: &dyn View) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        let mut next = None;
        view.read_directory(ROOT_INO, cookie, &mut |entry| {
            next = Some(entry);
            ControlFlow::Break(())
        })
        .unwrap();
        match next {
            Some(entry) => {
                assert!(entry.cookie > cookie);
                cookie = entry.cookie;
                names.push(entry.name);
            }
            None => return names,
        }
    }
}

#[test]
fn colliding_names_live_side_by_side() {
    let volume = colliding_volume();
    let tx = volume.begin();
    let names: Vec<String> = (0..24).map(|number| format!("name-{number}")).collect();
    for name in &names[..16] {
        tx.write_file(name, name.as_bytes()).unwrap();
    }
    tx.commit(Durability::Ordered).unwrap();
    let tx = volume.begin();
    for name in &names[16..] {
        tx.write_file(name, name.as_bytes()).unwrap();
    }
    for name in &names[..4] {
        tx.remove(name).unwrap();
    }
    let mut expected: Vec<Vec<u8>> = names[4..].iter().map(|name| name.clone().into_bytes()).collect();
    expected.extend([b".".to_vec(), b"..".to_vec()]);
    expected.sort();
    for view in [&tx as &dyn View, &volume.base()] {
        let mut listed = list_one_by_one(view);
        listed.sort();
        assert_eq!(listed, expected);
        if let Ok(receipt) = tx.commit(Durability::Ordered) {
            assert!(receipt.sequence > 0);
        }
    }
    for name in &names[4..] {
        assert_eq!(volume.base().read_file(name).unwrap(), name.as_bytes());
    }
    assert!(volume.check().unwrap().is_clean());
}

#[test]
fn a_listing_goes_on_although_names_around_it_go() {
    let volume = colliding_volume();
    let base = volume.base();
    for number in 0..24 {
        base.write_file(format!("name-{number}"), b"").unwrap();
    }
    // Removing every name as soon as it was listed, as `rm -r` does, must leave nothing.
    let mut cookie = 2;
    loop {
        let mut next = None;
        base.read_directory(ROOT_INO, cookie, &mut |entry| {
            next = Some(entry);
            ControlFlow::Break(())
        })
        .unwrap();
        let Some(entry) = next else { break };
        cookie = entry.cookie;
        base.unlink(ROOT_INO, &entry.name).unwrap();
    }
    assert!(base.list_directory(ROOT_INO).unwrap().is_empty());
    assert!(volume.check().unwrap().is_clean());
}
