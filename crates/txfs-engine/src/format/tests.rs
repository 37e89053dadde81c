//! The format against its documentation, and decoders against damaged and arbitrary bytes.

use super::*;

const DOCUMENT: &str = include_str!("../../../../docs/FORMAT.md");

/// The hexadecimal dump behind `<!-- example: NAME -->`.
fn example(name: &str) -> Vec<u8> {
    let marker = format!("<!-- example: {name} -->\n```\n");
    let start = DOCUMENT.find(&marker).expect("example in docs/FORMAT.md") + marker.len();
    let end = start + DOCUMENT[start..].find("```").expect("end of the example");
    let digits: String = DOCUMENT[start..end].chars().filter(|c| c.is_ascii_hexdigit()).collect();
    (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("hex"))
        .collect()
}

fn dump(bytes: &[u8]) -> String {
    let line = |chunk: &[u8]| chunk.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    bytes.chunks(16).map(line).collect::<Vec<_>>().join("\n")
}

fn example_record() -> Vec<u8> {
    let mut mutations = Vec::new();
    Mutation::Put { key: b"k".to_vec(), value: b"v".to_vec() }.encode_into(&mut mutations);
    Mutation::Delete { key: b"gone".to_vec() }.encode_into(&mut mutations);
    let header = RecordHeader {
        kind: RecordKind::Commit,
        parts: 0,
        volume: u64::from_le_bytes([7; 8]),
        number: 5,
        epoch: 2,
        sequence: 4,
        chain: 0x1122_3344,
        durable: 3,
        data_len: 5,
        mutation_len: mutations.len() as u32,
    };
    let mut record = header.seal(&[b"hello"], &mutations).0.to_vec();
    record.extend_from_slice(b"hello");
    record.extend_from_slice(&mutations);
    record.resize(header.record_len(), 0);
    record
}

fn example_manifest() -> Manifest {
    Manifest {
        volume_id: [1; 16],
        name_key: [2; 16],
        segment_bytes: 1 << 25,
        epoch: 77,
        epoch_first_record: 1234,
        size_bytes_max: 1 << 40,
        preallocated_bytes: 1 << 30,
    }
}

#[test]
fn the_documented_examples_are_what_is_written() {
    let record = example_record();
    assert_eq!(dump(&example("record")), dump(&record), "docs/FORMAT.md, record");
    let extent = Extent::describe(1, 4608 + 64, b"hello").encode();
    assert_eq!(dump(&example("extent")), dump(&extent), "docs/FORMAT.md, extent");
}

#[test]
fn what_was_encoded_decodes() {
    let manifest = example_manifest();
    assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
    let segment = SegmentHeader { volume_id: [1; 16], segment: 3, first_record: 4, epoch: 5, chain: 6 };
    assert_eq!(SegmentHeader::decode(&segment.encode()), Ok(segment));
    let checkpoint = CheckpointRecord {
        chain: 1,
        sequence: 2,
        next_record: 3,
        epoch: 4,
        segment: 5,
        offset: 6,
        live_bytes: vec![(1, 100), (9, 200)],
    };
    assert_eq!(CheckpointRecord::decode(&checkpoint.encode()), Ok(checkpoint));
    let record = example_record();
    let (header, checksum) = RecordHeader::decode(&record).expect("header");
    assert_eq!(RecordHeader::verify(&record[..header.body_end()], checksum), Ok(()));
    assert_eq!((header.number, header.sequence, header.durable), (5, 4, 3));
}

#[test]
fn extents_are_cut_at_pages() {
    let data: Vec<u8> = (0..10_000u32).map(|at| at as u8).collect();
    let extent = Extent::describe(4, 1000, &data);
    assert_eq!((extent.pages(), extent.page_len(0), extent.page_len(2)), (3, 4096, 10_000 - 8192));
    assert_eq!(extent.slice_pages(0, 3), extent);
    assert_eq!(extent.slice_pages(1, 1), Extent::describe(4, 1000 + 4096, &data[4096..8192]));
    assert_eq!(extent.slice_pages(1, 2), Extent::describe(4, 1000 + 4096, &data[4096..]));
    assert_eq!(Extent::decode(&extent.encode()), Ok(extent));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let record = example_record();
    let end = RecordHeader::decode(&record).expect("header").0.body_end();
    for bit in 0..end * 8 {
        let mut damaged = record.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let noticed = match RecordHeader::decode(&damaged) {
            Err(_) => true,
            Ok((header, _)) if header.body_end() != end => true,
            Ok((_, checksum)) => RecordHeader::verify(&damaged[..end], checksum).is_err(),
        };
        assert!(noticed, "bit {bit}");
    }
    let manifest = example_manifest().encode();
    for bit in 0..manifest.len() * 8 {
        let mut damaged = manifest;
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Manifest::decode(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn decoders_never_panic_on_arbitrary_bytes() {
    let mut random = fastrand::Rng::with_seed(5);
    let seeds =
        [example_record(), Extent::describe(1, 2, &[1; 9000]).encode(), vec![0; 600], vec![0xff; 600]];
    for _ in 0..20_000 {
        let mut bytes = seeds[random.usize(0..seeds.len())].clone();
        for _ in 0..random.usize(0..8) {
            let at = random.usize(0..bytes.len());
            bytes[at] = random.u8(..);
        }
        bytes.truncate(random.usize(0..=bytes.len()));
        let _ = RecordHeader::decode(&bytes);
        let _ = Extent::decode(&bytes).map(|extent| extent.slice_pages(0, extent.pages()));
        let _ = Manifest::decode(&bytes);
        let _ = SegmentHeader::decode(&bytes);
        let _ = CheckpointRecord::decode(&bytes);
        let _ = Mutation::decode_all(&bytes);
        let _ = Mutation::decode_all(bytes.get(64..).unwrap_or_default());
    }
}
