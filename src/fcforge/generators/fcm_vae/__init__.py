"""FCM-VAE: settings and presets, network, training, sampling."""

from fcforge.generators.fcm_vae.generator import FCMVAE

__all__ = ["FCMVAE"]
