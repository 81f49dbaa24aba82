//! One delivery: HPKE (RFC 9180) with X25519, HKDF-SHA256 and ChaCha20-Poly1305, in base mode, to the
//! key of a batch. What is sealed opens for that sandbox, operation, batch, secret and owner only.
//! The private key is never written, and is erased with the batch.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::{Kem as _, X25519HkdfSha256};
use hpke::{Deserializable as _, OpModeR, OpModeS, Serializable as _};
use serde::{Deserialize, Serialize};
use stockade_core::OwnerId;
use zeroize::Zeroizing;

use crate::error::{Error, Part};
use crate::fields::Fields;
use crate::joined;
use crate::kind::Kind;

type Private = <X25519HkdfSha256 as hpke::kem::Kem>::PrivateKey;
type Public = <X25519HkdfSha256 as hpke::kem::Kem>::PublicKey;
type Encapsulated = <X25519HkdfSha256 as hpke::kem::Kem>::EncappedKey;

/// What a secret is delivered for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    /// The sandbox that it is for.
    pub sandbox: String,
    /// The operation.
    pub operation: String,
    /// The batch of the operation.
    pub batch: String,
}

impl Context {
    fn info(&self) -> Vec<u8> {
        let parts = [self.sandbox.as_bytes(), self.operation.as_bytes(), self.batch.as_bytes()];
        joined("stockade/secret/v1", parts)
    }
}

/// Which secret it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Its id.
    pub secret: String,
    /// Its version: each new value has the next one.
    pub version: u64,
    /// Its owner.
    pub owner: OwnerId,
    /// Its name, by which it is used.
    pub name: String,
    /// Its type, and so the names of its fields.
    pub kind: Kind,
}

impl Label {
    pub(crate) fn bytes(&self, domain: &str) -> Vec<u8> {
        joined(
            domain,
            std::iter::once(self.name.as_bytes())
                .chain(self.without_name(&self.version.to_be_bytes())),
        )
    }

    /// Without the name, as the first form of records has it.
    pub(crate) fn bytes_without_name(&self, domain: &str) -> Vec<u8> {
        joined(domain, self.without_name(&self.version.to_be_bytes()))
    }

    fn without_name<'a>(&'a self, version: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let own = [self.secret.as_bytes(), version, self.owner.as_str().as_bytes()];
        let fields = self.kind.fields().iter().map(|field| field.as_bytes());
        own.into_iter().chain([self.kind.as_str().as_bytes()]).chain(fields)
    }
}

/// The public key of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchKey(Public);

/// A sealed secret on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Envelope {
    /// The encapsulated key, as base64.
    pub public_key: String,
    /// The ciphertext, as base64.
    pub encrypted: String,
}

impl Envelope {
    /// Seals a secret to the key of a batch.
    ///
    /// # Errors
    /// [`Error::Seal`].
    pub fn seal(
        to: &BatchKey,
        context: &Context,
        label: &Label,
        fields: &Fields,
    ) -> Result<Self, Error> {
        let (encapsulated, sealed) =
            hpke::single_shot_seal::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
                &OpModeS::Base,
                &to.0,
                &context.info(),
                &fields.to_json()?,
                &label.bytes(AAD),
            )
            .map_err(|_| Error::Seal)?;
        Ok(Self {
            public_key: STANDARD.encode(encapsulated.to_bytes()),
            encrypted: STANDARD.encode(sealed),
        })
    }
}

/// Distinguishes the label in an envelope.
const AAD: &str = "stockade/secret/label/v1";

/// The key pair of one delivery.
pub struct Batch {
    /// Erased when it is dropped.
    private: Private,
    public: Public,
    context: Context,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("context", &self.context).finish_non_exhaustive()
    }
}

impl Batch {
    /// A batch with a key pair of its own.
    pub fn new(context: Context) -> Self {
        let (private, public) = X25519HkdfSha256::gen_keypair();
        Self { private, public, context }
    }

    /// Its public key.
    pub fn key(&self) -> BatchKey {
        BatchKey(self.public.clone())
    }

    /// What it is for.
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// Opens a secret that was sealed for this batch.
    ///
    /// # Errors
    /// [`Error::Envelope`] for another form; [`Error::Open`] if it was sealed for another use.
    pub fn open(&self, label: &Label, envelope: &Envelope) -> Result<Fields, Error> {
        let decoded = |part, text: &str| {
            STANDARD.decode(text).map_err(|_| Error::Envelope { part, why: "it is not base64" })
        };
        let encapsulated = decoded(Part::PublicKey, &envelope.public_key)?;
        let sealed = decoded(Part::Encrypted, &envelope.encrypted)?;
        let encapsulated = Encapsulated::from_bytes(&encapsulated)
            .map_err(|_| Error::Envelope { part: Part::PublicKey, why: "it is no key" })?;
        let opened = hpke::single_shot_open::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &OpModeR::Base,
            &self.private,
            &encapsulated,
            &self.context.info(),
            &sealed,
            &label.bytes(AAD),
        );
        let json = Zeroizing::new(opened.map_err(|_| Error::Open)?);
        Fields::from_json(label.kind, &json)
    }
}
