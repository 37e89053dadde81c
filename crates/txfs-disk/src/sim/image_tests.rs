//! The image against a plain byte vector, and the cost of sharing.

use super::*;

fn contents(image: &Image) -> Vec<u8> {
    let mut bytes = vec![0xee; image.len() as usize];
    image.read(0, &mut bytes);
    bytes
}

#[test]
fn behaves_like_a_byte_vector() {
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut image = Image::default();
        let mut model: Vec<u8> = Vec::new();
        let mut older: Vec<(Image, Vec<u8>)> = Vec::new();
        for _ in 0..60 {
            let offset = random.usize(0..300_000);
            let len = random.usize(0..10_000);
            match random.u8(0..6) {
                0 => {
                    image.grow_to(offset as u64);
                    model.resize(model.len().max(offset), 0);
                }
                1 => {
                    image.cut_to(offset as u64);
                    model.truncate(offset);
                }
                2 => older.push((image.clone(), model.clone())),
                3 if !older.is_empty() => {
                    let (other, other_model) = &older[random.usize(0..older.len())];
                    image.copy_from(other, offset as u64, (offset + len) as u64);
                    for at in offset..(offset + len).min(model.len()) {
                        model[at] = other_model.get(at).copied().unwrap_or(0);
                    }
                }
                _ => {
                    let byte = if random.bool() { 0 } else { random.u8(..) };
                    image.grow_to((offset + len) as u64);
                    image.write(offset as u64, &vec![byte; len]);
                    model.resize(model.len().max(offset + len), 0);
                    model[offset..offset + len].fill(byte);
                }
            }
            assert_eq!(image.len(), model.len() as u64, "seed {seed}");
        }
        assert_eq!(contents(&image), model, "seed {seed}");
        for (image, model) in &older {
            assert_eq!(&contents(image), model, "an older version changed, seed {seed}");
        }
        let mut rebuilt = Image::default();
        rebuilt.grow_to(model.len() as u64);
        rebuilt.write(0, &model);
        assert_eq!(rebuilt.digest(), image.digest(), "equal contents, different digests, seed {seed}");
        // what was cut off must not come back when the image grows again
        let cut = random.u64(0..=image.len());
        image.cut_to(cut);
        image.grow_to(400_000);
        model.truncate(cut as usize);
        model.resize(400_000, 0);
        assert_eq!(contents(&image), model, "seed {seed}");
    }
}

#[test]
fn digest_sees_every_byte_and_its_place() {
    let mut image = Image::default();
    image.grow_to(1 << 20);
    let empty = image.digest();
    let mut seen = std::collections::HashSet::from([empty]);
    for offset in [0u64, 1, 4095, 4096, 131_071, 131_072, 500_000, (1 << 20) - 1] {
        let mut changed = image.clone();
        changed.write(offset, &[1]);
        assert!(seen.insert(changed.digest()), "offset {offset}");
        changed.write(offset, &[0]);
        assert_eq!(changed.digest(), empty, "zeros written over are zeros, offset {offset}");
    }
}

#[test]
fn holes_cost_nothing() {
    let mut image = Image::default();
    image.grow_to(1 << 40);
    image.write((1 << 33) + 5, b"far out");
    assert_eq!(image.block_offsets(), vec![1 << 33]);
    let mut bytes = [0; 7];
    image.read((1 << 33) + 5, &mut bytes);
    assert_eq!(&bytes, b"far out");
    image.write(1 << 33, &[0; 4096]);
    assert!(image.block_offsets().is_empty(), "a block of zeros is a hole again");
}
