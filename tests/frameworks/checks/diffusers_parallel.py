"""Diffusers' context parallelism as `enable_parallelism` applies it: Flux and Wan under Ulysses, Flux in a ring."""

import torch
from diffusers import ContextParallelConfig, FluxTransformer2DModel, WanTransformer3DModel

import graphguard as gg

TOKENS, WORDS = 8, 4


def flux() -> torch.nn.Module:
    return FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=12,
        pooled_projection_dim=12,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=False,
    ).eval()


def wan() -> torch.nn.Module:
    return WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=4,
        out_channels=4,
        text_dim=16,
        freq_dim=256,
        ffn_dim=32,
        num_layers=1,
        rope_max_seq_len=32,
    ).eval()


def of_flux(model: torch.nn.Module):
    @torch.no_grad()
    def run(x: torch.Tensor, words: torch.Tensor, pooled: torch.Tensor, time: torch.Tensor):
        parameter = next(model.parameters())
        x, words, pooled, time = (each.to(parameter.device, parameter.dtype) for each in (x, words, pooled, time))
        places = {
            "img_ids": torch.zeros(TOKENS, 3, device=x.device),
            "txt_ids": torch.zeros(WORDS, 3, device=x.device),
        }
        return model(x, words, pooled, timestep=time, return_dict=False, **places)[0]

    return run


FLUX = (gg.tensor(1, TOKENS, 4), gg.tensor(1, WORDS, 12), gg.tensor(1, 12), gg.tensor(1))


@gg.check(mesh={"cp": 2})
def flux_under_ulysses(mesh):
    model = flux()
    model.enable_parallelism(config=ContextParallelConfig(ulysses_degree=2))
    return gg.Refinement(of_flux(flux()), of_flux(model), FLUX, out_relations="replicate")


@gg.check(mesh={"cp": 2})
def flux_in_a_ring(mesh):
    spec, model = (flux().cuda().bfloat16() for _ in range(2))
    model.enable_parallelism(config=ContextParallelConfig(ring_degree=2))
    model.set_attention_backend("_native_flash")
    return gg.Refinement(of_flux(spec), of_flux(model), FLUX, out_relations="replicate")


@gg.check(mesh={"cp": 2})
def wan_under_ulysses(mesh):
    spec, model = wan(), wan()
    model.enable_parallelism(config=ContextParallelConfig(ulysses_degree=2))

    def of(transformer: torch.nn.Module):
        @torch.no_grad()
        def run(x: torch.Tensor, time: torch.Tensor, words: torch.Tensor):
            return transformer(x, time, words, return_dict=False)[0]

        return run

    inputs = (gg.tensor(1, 4, 2, 6, 4), gg.tensor(1), gg.tensor(1, WORDS, 16))
    return gg.Refinement(of(spec), of(model), inputs, out_relations="replicate")
