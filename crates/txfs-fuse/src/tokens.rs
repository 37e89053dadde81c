//! Names for inodes: how a file that is open is opened again in another view.
//!
//! A token is a name in `.txfs/node` for one regular file in one view, for one user. It is random, so nobody else can use
//! it, and it dies with its first lookup, after some seconds, or when many newer ones have been given out. It keeps
//! nothing alive: a file or view that is gone when it is looked up is gone.
//! Locks: `Tokens::given` is a leaf.

use crate::errno::Errno;
use crate::nodes::NodeId;
use parking_lot::Mutex;
use rustix::rand::{GetRandomFlags, getrandom};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// How long a token can be used: for as long as somebody may take from the `ioctl` to the `open` that follows it.
const LIFE: Duration = Duration::from_secs(10);

/// How many unused tokens there are at most.
const TOKENS_MAX: usize = 4096;

/// 128 random bits, as hexadecimal digits.
pub(crate) type Token = [u8; 32];

/// What a token stands for, and for whom.
struct Grant {
    node: NodeId,
    uid: u32,
    made: Instant,
}

/// The tokens of one mount that nobody has used yet.
#[derive(Default)]
pub(crate) struct Tokens {
    given: Mutex<Given>,
}

#[derive(Default)]
struct Given {
    by_token: HashMap<Token, Grant>,
    /// Oldest first; used ones stay here until they would have died.
    order: VecDeque<(Instant, Token)>,
}

impl Tokens {
    /// A new token for a node.
    pub(crate) fn give(&self, node: NodeId, uid: u32) -> Result<Token, Errno> {
        self.give_at(node, uid, Instant::now())
    }

    fn give_at(&self, node: NodeId, uid: u32, now: Instant) -> Result<Token, Errno> {
        let mut random = [0; 16];
        getrandom(&mut random, GetRandomFlags::empty()).map_err(|error| Errno(error.raw_os_error()))?;
        let mut token = [0; 32];
        for (digits, byte) in token.chunks_exact_mut(2).zip(random) {
            digits.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        let mut given = self.given.lock();
        let given = &mut *given;
        while let Some((made, old)) = given.order.front()
            && (given.order.len() >= TOKENS_MAX || now.duration_since(*made) > LIFE)
        {
            given.by_token.remove(old);
            given.order.pop_front();
        }
        given.order.push_back((now, token));
        given.by_token.insert(token, Grant { node, uid, made: now });
        Ok(token)
    }

    /// A token and its node, used up thereby; `None` for what is no token of this user.
    pub(crate) fn take(&self, name: &[u8], uid: u32) -> Option<(Token, NodeId)> {
        self.take_at(name, uid, Instant::now())
    }

    fn take_at(&self, name: &[u8], uid: u32, now: Instant) -> Option<(Token, NodeId)> {
        let mut given = self.given.lock();
        let grant = given.by_token.get(name)?;
        let (own, alive) = (grant.uid == uid, now.duration_since(grant.made) <= LIFE);
        if !own {
            return None;
        }
        let (token, grant) = given.by_token.remove_entry(name)?;
        alive.then_some((token, grant.node))
    }
}

fn digit(value: u8) -> u8 {
    b"0123456789abcdef"[usize::from(value)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId::join(3, 7);

    #[test]
    fn a_token_is_used_once_and_by_its_user_only() {
        let tokens = Tokens::default();
        let token = tokens.give(NODE, 1000).unwrap();
        assert_ne!(token, tokens.give(NODE, 1000).unwrap());
        assert_eq!(tokens.take(&token, 0), None);
        assert_eq!(tokens.take(&token[..31], 1000), None);
        assert_eq!(tokens.take(&token, 1000), Some((token, NODE)));
        assert_eq!(tokens.take(&token, 1000), None);
    }

    #[test]
    fn a_token_gets_old() {
        let tokens = Tokens::default();
        let made = Instant::now();
        let (one, two) = (tokens.give_at(NODE, 0, made).unwrap(), tokens.give_at(NODE, 0, made).unwrap());
        assert_eq!(tokens.take_at(&one, 0, made + LIFE), Some((one, NODE)));
        assert_eq!(tokens.take_at(&two, 0, made + LIFE + Duration::from_millis(1)), None);
    }

    #[test]
    fn unused_tokens_do_not_pile_up() {
        let tokens = Tokens::default();
        let first = tokens.give(NODE, 0).unwrap();
        let many: Vec<_> = (0..TOKENS_MAX).map(|_| tokens.give(NODE, 0).unwrap()).collect();
        assert_eq!(tokens.given.lock().by_token.len(), TOKENS_MAX);
        assert_eq!(tokens.take(&first, 0), None);
        assert_eq!(tokens.take(&many[0], 0), Some((many[0], NODE)));
        tokens.give_at(NODE, 0, Instant::now() + 2 * LIFE).unwrap();
        let given = tokens.given.lock();
        assert_eq!((given.by_token.len(), given.order.len()), (1, 1));
    }
}
