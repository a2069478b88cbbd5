//! Transfers that change their addresses.

/// Moves a transfer of 100 bytes to other places within buffers of 1,000, and checks that it stays within them.
pub fn to_other_places(transfer: &mut dyn workload::Transfer, name: &str) {
    for (source, destination) in [(900, 0), (0, 900), (17, 33), (0, 0)] {
        let data = [source as u8 | 1; 100];
        transfer.ends().unwrap().write_source(source, &data).unwrap();
        transfer.ends().unwrap().write_destination(destination - 64, &[0; 228]).unwrap();
        transfer.move_to(source as u64, destination as u64).unwrap();
        transfer.submit().unwrap();
        transfer.wait(std::time::Duration::from_secs(10)).unwrap();
        let mut found = [1; 228];
        transfer.ends().unwrap().read_destination(destination - 64, &mut found).unwrap();
        assert!(found[64..164] == data && found[..64] == [0; 64] && found[164..] == [0; 64], "{name}");
    }
    for (source, destination) in [(901, 0), (0, 901), (u64::MAX, 0)] {
        assert!(matches!(transfer.move_to(source, destination), Err(workload::Error::Capacity { .. })), "{name}");
    }
}
