use std::collections::BTreeMap;

use super::model::NvmeModel;
use super::*;
use crate::io::nvme::Entry;
use crate::sched::random::Random;

const PARAMETERS: NvmeParameters = NvmeParameters { capacity_bytes: 10 << 20, value_bytes_max: 64 << 10 };

fn device() -> Arc<NvmeKv> {
    NvmeKv::on(Arc::new(NvmeModel::default()), PARAMETERS).unwrap()
}

#[test]
fn an_entry_has_each_field_in_its_place() {
    let key = DeviceKey::new(b"0123456789abcdef");
    let entry = Command { opcode: Opcode::Store, key, data_bytes: 0x1234 }.encode();
    let mut wanted: Entry = [0; 64];
    wanted[0] = 0x01;
    wanted[8..16].copy_from_slice(b"01234567");
    wanted[40..44].copy_from_slice(&[0x34, 0x12, 0, 0]);
    wanted[44] = 16;
    wanted[56..64].copy_from_slice(b"89abcdef");
    assert_eq!(entry, wanted);
    let opcodes = [Opcode::Flush, Opcode::Store, Opcode::Retrieve, Opcode::List, Opcode::Delete, Opcode::Exist];
    assert_eq!(opcodes.map(|opcode| opcode as u8), [0x00, 0x01, 0x02, 0x06, 0x10, 0x14]);
}

#[test]
fn a_namespace_of_another_command_set_is_refused_before_its_first_command() {
    let identify = command::identify_namespace();
    let mut wanted: Entry = [0; 64];
    (wanted[0], wanted[40]) = (0x06, 0x03);
    assert_eq!(identify, wanted);
    let name: &[u8] = &[3, 16, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7];
    let set = |set: u8| [name, &[4, 1, 0, 0, set]].concat();
    let after_the_end = [name, &[0; 4], &[4, 1, 0, 0, 1]].concat();
    let cases: [(Option<&[u8]>, Option<u8>); 7] = [
        // What the device says of the namespace, and its command set if it is refused.
        (Some(&set(1)), None),
        (Some(&[4, 1, 0, 0, 1]), None),
        (Some(&set(0)), Some(0)),
        (Some(&set(2)), Some(2)),
        (Some(name), Some(0)),
        (Some(&after_the_end), Some(0)),
        (None, Some(0)),
    ];
    for (descriptors, refused) in cases {
        let model = Arc::new(NvmeModel::with_descriptors(descriptors));
        let opened = NvmeKv::on(model.clone(), PARAMETERS).map(drop).map_err(|error| error.to_string());
        match refused {
            None => assert!(opened.is_ok() && model.commands() > 0, "{opened:?} for {descriptors:?}"),
            Some(set) => {
                let named = format!("the command set {set},");
                assert!(matches!(&opened, Err(error) if error.contains(&named)), "{opened:?} for {descriptors:?}");
                assert_eq!(model.commands(), 0, "{descriptors:?}");
            }
        }
    }
    // Lists that end within a descriptor.
    for cut in 0..set(1).len() {
        assert_eq!(command::command_set_of(&set(1)[..cut]), None, "{cut}");
    }
}

#[test]
fn a_list_that_is_damaged_is_refused() {
    let mut list = vec![1, 0, 0, 0, 3, 0, b'a', b'b', b'c', 0, 0, 0];
    assert_eq!(command::decode_list(&list), Some(vec![DeviceKey::new(b"abc")]));
    for (at, byte) in [(0, 2), (4, 17), (4, 0), (5, 1)] {
        let before = std::mem::replace(&mut list[at], byte);
        assert_eq!(command::decode_list(&list), None, "{at}");
        list[at] = before;
    }
    assert_eq!(command::decode_list(&[1, 0]), None);
}

/// Keys of all lengths; values that are longer than what is read at first.
#[test]
fn random_commands_give_what_a_map_gives() {
    let (model, mut random, mut pairs) = (Arc::new(NvmeModel::default()), Random::new(7), BTreeMap::new());
    let mut device = NvmeKv::on(model.clone(), PARAMETERS).unwrap();
    let identity = device.identity();
    for step in 0..2000u32 {
        let len = [1, 4, 14, 15, 16, 17, 40][random.below(7) as usize];
        let key = vec![random.below(12) as u8; len];
        match random.below(8) {
            0..4 => {
                let value = vec![step as u8; random.below(30_000) as usize];
                device.store(&key, &value).unwrap();
                pairs.insert(key, value);
            }
            4..6 => assert_eq!(device.delete(&key).unwrap(), pairs.remove(&key).is_some()),
            _ => {
                assert_eq!(device.retrieve(&key).unwrap(), pairs.get(&key).cloned());
                assert_eq!(device.exist(&key).unwrap(), pairs.contains_key(&key));
            }
        }
        if step % 500 == 499 {
            device = NvmeKv::on(model.clone(), PARAMETERS).unwrap();
            let mut keys = Vec::new();
            device.list(&mut |key| keys.push(key.to_vec())).unwrap();
            keys.sort();
            assert!(keys.iter().eq(pairs.keys()));
            assert_eq!(device.identity(), identity);
        }
    }
    device.reset().unwrap();
    let mut left = 0;
    device.list(&mut |_| left += 1).unwrap();
    assert_eq!((left, device.usage().used_bytes, device.identity()), (0, 0, identity));
}

/// More keys than one list command returns.
#[test]
fn all_keys_are_listed_once() {
    let device = device();
    for number in 0..10_000u32 {
        device.store(&number.to_le_bytes(), b"").unwrap();
    }
    let mut keys = Vec::new();
    device.list(&mut |key| keys.push(key.to_vec())).unwrap();
    let count = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!((count, keys.len()), (10_000, 10_000));
}

#[test]
fn a_long_key_whose_hash_belongs_to_another_one_is_not_taken_for_it() {
    let device = device();
    let long = [7; 40];
    device.store(&long, b"long").unwrap();
    let all = |device: &NvmeKv| {
        let mut keys = Vec::new();
        device.list(&mut |key| keys.push(key.to_vec())).unwrap();
        keys.sort();
        keys
    };
    // Each part of this hash that a device takes as a key; one of them is the key of the long one there.
    let hash = xxh3_128(&long).to_be_bytes();
    let mut same = 0;
    for len in 1..=DEVICE_KEY_BYTES {
        let short = &hash[..len];
        assert_eq!((device.retrieve(short).unwrap(), device.exist(short).unwrap()), (None, false), "{len}");
        assert!(!device.delete(short).unwrap());
        match device.store(short, b"short") {
            Ok(()) => {
                assert_eq!(device.retrieve(short).unwrap().as_deref(), Some(&b"short"[..]));
                assert!(device.exist(short).unwrap() && device.delete(short).unwrap());
            }
            Err(error) => {
                assert!(error.to_string().contains("same hash"), "{error}");
                same += 1;
            }
        }
        assert_eq!(device.retrieve(&long).unwrap().as_deref(), Some(&b"long"[..]), "{len}");
        assert_eq!((all(&device), device.usage().used_bytes), (vec![long.to_vec()], 4), "{len}");
    }
    assert_eq!(same, 1);
    // The short key was there first.
    assert!(device.delete(&long).unwrap());
    let short = device_key(&long).unwrap().bytes().to_vec();
    device.store(&short, b"short").unwrap();
    assert_eq!((device.retrieve(&long).unwrap(), device.exist(&long).unwrap()), (None, false));
    assert!(device.store(&long, b"long").is_err() && !device.delete(&long).unwrap());
    assert_eq!(device.retrieve(&short).unwrap().as_deref(), Some(&b"short"[..]));
}

#[test]
fn a_device_that_is_full_says_so() {
    let device = NvmeKv::on(Arc::new(NvmeModel::with_capacity(10_000)), PARAMETERS).unwrap();
    device.store(b"a", &[1; 9000]).unwrap();
    assert_eq!(device.store(b"b", &[1; 9000]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    let small = NvmeParameters { capacity_bytes: 100, ..PARAMETERS };
    let device = NvmeKv::on(Arc::new(NvmeModel::default()), small).unwrap();
    device.store(b"a", &[1; 90]).unwrap();
    assert_eq!(device.store(b"b", &[1; 20]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    device.store(b"a", &[1; 100]).unwrap();
    assert_eq!(device.traffic().media_bytes_written, 0);
}
