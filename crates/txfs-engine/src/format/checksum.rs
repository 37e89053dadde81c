//! CRC-32C of bytes whose parts have theirs already: CRCs are linear, so that of two pieces in a row follows from those
//! of the pieces and the length of the second one.
//!
//! File data is checksummed by page for its extents; with this the checksum of the record that carries the pages costs
//! a table look-up for each of them, instead of reading all bytes once more.

use super::extent::PAGE_BYTES;

/// Castagnoli's polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The polynomial 1, in which the highest coefficient comes last.
const ONE: u32 = 1 << 31;

/// The product of two polynomials, modulo the CRC's.
const fn multiply(mut a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    while a != 0 {
        if a & ONE != 0 {
            product ^= b;
        }
        a <<= 1;
        b = if b & 1 == 1 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
    }
    product
}

/// What so many bytes behind it do to a checksum: a multiplication by x to the power of their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shift(u32);

impl Shift {
    /// For `bytes` bytes.
    pub(crate) const fn by(mut bytes: usize) -> Shift {
        let mut power = ONE >> 8;
        let mut result = ONE;
        while bytes > 0 {
            if bytes & 1 == 1 {
                result = multiply(power, result);
            }
            power = multiply(power, power);
            bytes >>= 1;
        }
        Shift(result)
    }

    /// The checksum of bytes with the checksum `first`, followed by as many as this is for, with the checksum `second`.
    pub(crate) fn join(self, first: u32, second: u32) -> u32 {
        multiply(self.0, first) ^ second
    }
}

/// By each byte of a checksum: what a page behind it does to it.
static PAGE_SHIFT: [[u32; 256]; 4] = page_shift();

const fn page_shift() -> [[u32; 256]; 4] {
    let shift = Shift::by(PAGE_BYTES).0;
    let mut table = [[0; 256]; 4];
    let mut place = 0;
    while place < 4 {
        let mut byte = 0;
        while byte < 256 {
            table[place][byte] = multiply(shift, (byte as u32) << (8 * place));
            byte += 1;
        }
        place += 1;
    }
    table
}

/// As [`Shift::join`], where what follows is one whole page.
fn join_page(first: u32, page: u32) -> u32 {
    let [a, b, c, d] = first.to_le_bytes();
    let [table_a, table_b, table_c, table_d] = &PAGE_SHIFT;
    table_a[a as usize] ^ table_b[b as usize] ^ table_c[c as usize] ^ table_d[d as usize] ^ page
}

/// The checksum of `len` bytes whose pages have these checksums; the last page may be short.
pub(crate) fn of_pages(pages: &[u32], len: usize) -> u32 {
    let (whole, short) = pages.split_at((len / PAGE_BYTES).min(pages.len()));
    let checksum = whole.iter().fold(0, |before, page| join_page(before, *page));
    short.iter().fold(checksum, |before, page| Shift::by(len % PAGE_BYTES).join(before, *page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_give_the_checksum_of_the_whole() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut bytes = vec![0; 70_000];
        random.fill(&mut bytes);
        for _ in 0..200 {
            let end = random.usize(0..=bytes.len());
            let at = random.usize(0..=end);
            let (first, second) = bytes[..end].split_at(at);
            let joined = Shift::by(second.len()).join(crc32c::crc32c(first), crc32c::crc32c(second));
            assert_eq!(joined, crc32c::crc32c(&bytes[..end]), "{at} of {end}");
        }
    }

    #[test]
    fn pages_give_the_checksum_of_the_data() {
        let mut bytes = vec![0; 5 * PAGE_BYTES + 1];
        fastrand::Rng::with_seed(6).fill(&mut bytes);
        for len in [0, 1, 4095, 4096, 4097, 3 * PAGE_BYTES, 5 * PAGE_BYTES + 1] {
            let pages: Vec<u32> = bytes[..len].chunks(PAGE_BYTES).map(crc32c::crc32c).collect();
            assert_eq!(of_pages(&pages, len), crc32c::crc32c(&bytes[..len]), "{len} bytes");
        }
    }
}
