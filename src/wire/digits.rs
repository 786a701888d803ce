//! Numbers as ASCII digits, written without `fmt` and without allocation, for the encoders of this floor.

/// Appends `value` in decimal.
pub(super) fn push_decimal(out: &mut Vec<u8>, value: u64) {
    push::<10>(out, value);
}

/// Appends `value` in lower-case hexadecimal.
pub(super) fn push_hex(out: &mut Vec<u8>, value: u64) {
    push::<16>(out, value);
}

/// How many digits [`push_decimal`] writes.
pub(super) fn decimal_len(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// How many digits [`push_hex`] writes.
pub(super) fn hex_len(value: u64) -> usize {
    value.checked_ilog2().map_or(1, |log| log as usize / 4 + 1)
}

fn push<const BASE: u64>(out: &mut Vec<u8>, mut value: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // 2^64 − 1 has 20 digits in decimal, fewer in hexadecimal.
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = DIGITS[(value % BASE) as usize];
        value /= BASE;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agrees_with_fmt(value: u64) {
        let (mut decimal, mut hex) = (Vec::new(), Vec::new());
        push_decimal(&mut decimal, value);
        push_hex(&mut hex, value);
        assert_eq!(decimal, value.to_string().as_bytes());
        assert_eq!(hex, format!("{value:x}").as_bytes());
        assert_eq!((decimal_len(value), hex_len(value)), (decimal.len(), hex.len()));
    }

    #[test]
    fn the_edges_of_each_width_agree_with_fmt() {
        for value in [0, 9, 10, 15, 16, 99, 100, 255, 256, u64::MAX / 10, u64::MAX] {
            agrees_with_fmt(value);
        }
    }

    proptest! {
        #[test]
        fn every_number_agrees_with_fmt(value: u64, shift in 0_u32..64) {
            agrees_with_fmt(value >> shift);
        }
    }
}
