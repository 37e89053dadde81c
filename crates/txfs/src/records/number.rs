//! Numbers of variable length: seven bits to a byte, the lowest first; 128 is added to each byte that another one follows.
//! Nothing but the shortest form is taken, so that a number has one form only.

/// Appends a number.
pub(crate) fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Takes a number off the front; nothing when there is none.
pub(crate) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return (byte != 0 || shift == 0).then_some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_taken() {
        for shift in 0..64 {
            for number in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                put(&mut bytes, number);
                assert!(bytes.len() <= 10);
                bytes.push(7);
                let mut rest = &bytes[..];
                assert_eq!(take(&mut rest), Some(number));
                assert_eq!(rest, [7]);
            }
        }
    }

    #[test]
    fn other_forms_are_refused() {
        let too_large = [&[0xff; 9][..], &[2]].concat();
        let endless = [0x80; 11];
        for bytes in [&[][..], &[0x80], &[0x81, 0], &too_large, &endless] {
            assert_eq!(take(&mut &bytes[..]), None, "{bytes:?}");
        }
    }
}
