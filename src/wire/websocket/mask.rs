//! The masking of client frames (RFC 6455 §5.3), undone in place.

/// Wide enough for the compiler to use whatever vector registers the machine has.
const BLOCK: usize = 32;

/// Unmasks (or masks: it is the same) a piece of a payload that begins `offset` bytes into its frame.
pub fn unmask(payload: &mut [u8], mask: [u8; 4], offset: usize) {
    let mut key = mask;
    key.rotate_left(offset % mask.len());
    let wide: [u8; BLOCK] = std::array::from_fn(|i| key[i % key.len()]);
    let (blocks, rest) = payload.as_chunks_mut::<BLOCK>();
    for block in blocks {
        for (byte, key) in block.iter_mut().zip(wide) {
            *byte ^= key;
        }
    }
    for (byte, key) in rest.iter_mut().zip(wide) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        let mut payload = *b"\x7f\x9f\x4d\x51\x58";
        unmask(&mut payload, [0x37, 0xfa, 0x21, 0x3d], 0);
        assert_eq!(&payload, b"Hello");
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_agree_with_the_definition(
            payload in prop::collection::vec(any::<u8>(), 0..300), mask: [u8; 4], cuts in prop::collection::vec(0_usize..300, 0..6)
        ) {
            let expected: Vec<u8> = payload.iter().enumerate().map(|(i, byte)| byte ^ mask[i % 4]).collect();
            let mut pieces = payload.clone();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(payload.len())).collect();
            cuts.extend([0, payload.len()]);
            cuts.sort_unstable();
            for cut in cuts.windows(2) {
                unmask(&mut pieces[cut[0]..cut[1]], mask, cut[0]);
            }
            prop_assert_eq!(pieces, expected);
        }
    }
}
