"""The Transformers against those of the package `transformers`, weights copied over: outputs and all gradients.

Llama (RoPE, RMSNorm, SwiGLU, shared keys and values), Mistral (a window), Mixtral (experts and balance loss), GPT-2
(learnt positions, LayerNorm, GELU), BERT's encoder (post-norm, both directions), BLOOM's slopes of ALiBi and DiffLlama
(the difference of two softmaxes). Llama and its kin take norms, angles and router in fp32 even where the weights are
float64, hence the tolerance of 5e-6.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.backbone import Backbone
from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.models.diff_transformer import NORM_EPS, DiffTransformerConfig
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.layers.attention import Attention
from chomsky_ladder.models.layers.position_bias import buckets
from chomsky_ladder.models.layers.positions import slopes
from chomsky_ladder.models.moe import MoEConfig
from chomsky_ladder.models.sliding_window import SlidingWindowConfig
from chomsky_ladder.models.transformer import TransformerConfig

transformers = pytest.importorskip("transformers")

torch.set_num_threads(1)

VOCAB, WIDTH, INNER, HEADS, DEPTH = 11, 24, 40, 4, 2
LENGTHS = (1, 2, 17, 63, 64, 65, 130)
BACKENDS: tuple[Backend, ...] = ("auto", "reference")
Parts = dict[str, Tensor]  # a parameter of theirs -> one of ours, or a view of part of it


def build(config: TransformerConfig | DiffTransformerConfig) -> Backbone:
    """A model whose norms and biases are not the trivial ones."""
    model = config.build(VOCAB).double()
    for norm in (module for module in model.modules() if isinstance(module, nn.RMSNorm | nn.LayerNorm)):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        norm.eps = 1e-6
        if isinstance(norm, nn.LayerNorm):
            nn.init.uniform_(norm.bias, -0.5, 0.5)
    return model


def fill(theirs: nn.Module, parts: Parts) -> None:
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.copy_(parts[name]) if name in parts else parameter.zero_()


def llama_parts(model: Backbone, kv_heads: int) -> Parts:
    """Views of our parameters under their names."""
    parts = {
        "model.embed_tokens.weight": model.embedding.weight,
        "model.norm.weight": model.norm.weight,
        "lm_head.weight": model.head.weight,
    }
    for number, block in enumerate(model.blocks):
        (attention, behind), (first, second), at = block.layers, block.norms, f"model.layers.{number}"
        shared = kv_heads * WIDTH // HEADS
        names = zip("qkv", attention.query_key_value.weight.split([WIDTH, shared, shared]), strict=True)
        parts |= {f"{at}.self_attn.{letter}_proj.weight": weight for letter, weight in names}
        parts[f"{at}.self_attn.o_proj.weight"] = attention.out.weight
        parts |= {f"{at}.input_layernorm.weight": first.weight, f"{at}.post_attention_layernorm.weight": second.weight}
        if isinstance(behind.out, nn.Linear):
            gate, up = behind.gate_up.weight.chunk(2)
            parts |= {f"{at}.mlp.gate_proj.weight": gate, f"{at}.mlp.up_proj.weight": up}
            parts[f"{at}.mlp.down_proj.weight"] = behind.out.weight
        else:
            parts[f"{at}.mlp.gate.weight"] = behind.router.weight
            parts[f"{at}.mlp.experts.gate_up_proj"] = behind.gate_up.mT
            parts[f"{at}.mlp.experts.down_proj"] = behind.out.mT
    return parts


def compare(model: Backbone, theirs: nn.Module, parts: Parts, *, tolerance: float, read: Callable[..., Any]) -> None:
    """Outputs, and the gradient of each of their parameters beside that of the part of ours it was copied from."""
    fill(theirs, parts)
    missing = {name for name, _ in theirs.named_parameters()} - set(parts)
    assert all("bias" in name for name in missing), missing
    for length in LENGTHS:
        tokens_BL = torch.randint(VOCAB, (3, length))
        expected_BLX = read(theirs, tokens_BL)
        weights_BLX = torch.randn_like(expected_BLX)
        names = list(parts)
        own = dict(theirs.named_parameters())
        expected = torch.autograd.grad((expected_BLX * weights_BLX).sum(), [own[name] for name in names])
        for backend in BACKENDS:
            found_BLX = read(model, tokens_BL, Context(backend=backend))
            torch.testing.assert_close(found_BLX, expected_BLX, rtol=tolerance, atol=tolerance)
            gradients = part_gradients(model, (found_BLX * weights_BLX).sum(), parts)
            for name, other in zip(names, expected, strict=True):
                scale = float(other.abs().max()) + 1
                torch.testing.assert_close(
                    gradients[name] / scale, other / scale, rtol=0, atol=10 * tolerance, msg=name
                )


def part_gradients(model: Backbone, loss: Tensor, parts: Parts) -> Parts:
    """The gradient of a view of a parameter is the same view of its gradient: read off by the places of its numbers."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    found = {}
    gradients = torch.autograd.grad(loss, parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        for name, part in parts.items():
            if part.untyped_storage().data_ptr() == parameter.untyped_storage().data_ptr():
                gradient = gradient.contiguous()
                found[name] = gradient.as_strided(part.shape, part.stride(), part.storage_offset())
    return found


def ours_or_theirs(model: nn.Module, tokens_BL: Tensor, ctx: Context | None = None) -> Tensor:
    return model(tokens_BL).logits if ctx is None else model(tokens_BL, ctx)


def llama_settings(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCAB,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": DEPTH,
        "num_attention_heads": HEADS,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"},
        "attn_implementation": "eager",
        "experts_implementation": "eager",
        "use_cache": False,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
        **more,
    }


OURS: dict[str, Any] = {"d_model": WIDTH, "num_blocks": DEPTH, "num_heads": HEADS, "d_inner": INNER}


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_llama(kv_heads: int) -> None:
    config = transformers.LlamaConfig(**llama_settings(num_key_value_heads=kv_heads))
    theirs = transformers.LlamaForCausalLM(config).double()
    model = build(TransformerConfig(**OURS, num_kv_heads=kv_heads))
    compare(model, theirs, llama_parts(model, kv_heads), tolerance=5e-6, read=ours_or_theirs)


@pytest.mark.parametrize("window", [1, 5, 16, 40])
def test_mistral(window: int) -> None:
    config = transformers.MistralConfig(**llama_settings(num_key_value_heads=2, sliding_window=window))
    theirs = transformers.MistralForCausalLM(config).double()
    model = build(SlidingWindowConfig(**OURS, num_kv_heads=2, window=window))
    compare(model, theirs, llama_parts(model, 2), tolerance=5e-6, read=ours_or_theirs)


def test_diffllama() -> None:
    theirs = transformers.DiffLlamaForCausalLM(transformers.DiffLlamaConfig(**llama_settings())).double()
    model = build(DiffTransformerConfig(**OURS))
    parts = llama_parts(model, HEADS)
    for number, (block, layer) in enumerate(zip(model.blocks, theirs.model.layers, strict=True)):
        names = zip(("q1", "k1", "q2", "k2"), block.layers[0].share_4K.unbind(0), strict=True)
        parts |= {f"model.layers.{number}.self_attn.lambda_{name}": vector for name, vector in names}
        layer.self_attn.groupnorm.eps = NORM_EPS
    compare(model, theirs, parts, tolerance=5e-6, read=ours_or_theirs)


@pytest.mark.parametrize("top_k", [1, 2])
def test_mixtral(top_k: int) -> None:
    settings = llama_settings(num_key_value_heads=4, num_local_experts=4, num_experts_per_tok=top_k)
    theirs = transformers.MixtralForCausalLM(transformers.MixtralConfig(**settings)).double()
    model = build(MoEConfig(**OURS, num_experts=4, top_k=top_k))
    compare(model, theirs, llama_parts(model, 4), tolerance=5e-6, read=ours_or_theirs)


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_the_balance_loss_of_mixtral_counts_every_choice(top_k: int) -> None:
    """Theirs sums the shares of the first, second .. choices, each of which is one: `top_k` times ours."""
    (block,) = MoEConfig(**{**OURS, "num_blocks": 1}, num_experts=4, top_k=top_k, balance=1.0).build(VOCAB).blocks
    experts, x_BLD, ctx = block.layers[1].double(), torch.randn(3, 9, WIDTH, dtype=torch.float64), Context()
    experts(x_BLD, ctx)
    scores = experts.router(x_BLD).flatten(0, 1)
    from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

    theirs = load_balancing_loss_func((scores,), num_experts=4, top_k=top_k)
    torch.testing.assert_close(top_k * ctx.losses["balance"][0], theirs, rtol=1e-6, atol=0, check_dtype=False)


def test_gpt2() -> None:
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_embd=WIDTH, n_inner=INNER, n_layer=DEPTH, n_head=HEADS, n_positions=150,
        activation_function="gelu", attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, layer_norm_epsilon=1e-6,
        tie_word_embeddings=False, attn_implementation="eager", use_cache=False, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    theirs = transformers.GPT2LMHeadModel(config).double()
    model = build(
        TransformerConfig(
            **OURS, positions="learnt", max_length=150, norm="layer", feed_forward="gelu", final_norm="layer"
        )
    )
    first = model.blocks[0]
    parts = {"transformer.wte.weight": model.embedding.weight, "transformer.wpe.weight": first.learnt.weight}
    parts |= {"transformer.ln_f.weight": model.norm.weight, "transformer.ln_f.bias": model.norm.bias}
    parts["lm_head.weight"] = model.head.weight
    for number, block in enumerate([first.block, *model.blocks[1:]]):
        (attention, mlp), at = block.layers, f"transformer.h.{number}"
        parts[f"{at}.attn.c_attn.weight"] = attention.query_key_value.weight.mT
        parts[f"{at}.attn.c_proj.weight"] = attention.out.weight.mT
        for name, linear in (("c_fc", mlp.inner), ("c_proj", mlp.out)):
            parts |= {f"{at}.mlp.{name}.weight": linear.weight.mT, f"{at}.mlp.{name}.bias": linear.bias}
        for index, norm in enumerate(block.norms, start=1):
            parts |= {f"{at}.ln_{index}.weight": norm.weight, f"{at}.ln_{index}.bias": norm.bias}
    compare(model, theirs, parts, tolerance=1e-10, read=ours_or_theirs)


def test_the_encoder_of_bert() -> None:
    """Compare all blocks on the same stream, because BERT norms its embeddings too."""
    config = transformers.BertConfig(
        hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=DEPTH, num_attention_heads=HEADS,
        hidden_act="gelu", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=1e-6,
        attn_implementation="eager",
    )  # fmt: skip
    theirs = transformers.BertModel(config).encoder.double()
    settings = {"positions": "none", "norm": "layer", "norm_place": "post", "feed_forward": "gelu"}
    model = build(EncoderConfig(**OURS, **settings, final_norm="none"))
    model.embedding.requires_grad_(False)
    model.head.requires_grad_(False)
    parts: Parts = {}
    for number, block in enumerate(model.blocks):
        (attention, mlp), (first, second), at = block.layers, block.norms, f"layer.{number}"
        names = zip(("query", "key", "value"), attention.query_key_value.weight.chunk(3), strict=True)
        parts |= {f"{at}.attention.self.{name}.weight": weight for name, weight in names}
        parts[f"{at}.attention.output.dense.weight"] = attention.out.weight
        for name, module in (
            ("attention.output.LayerNorm", first),
            ("intermediate.dense", mlp.inner),
            ("output.dense", mlp.out),
            ("output.LayerNorm", second),
        ):
            parts |= {f"{at}.{name}.weight": module.weight, f"{at}.{name}.bias": module.bias}

    def stream(either: nn.Module, tokens_BL: Tensor, ctx: Context | None = None) -> Tensor:
        x_BLD = model.embedding.weight[tokens_BL]
        if ctx is None:
            return either(x_BLD).last_hidden_state
        for block in model.blocks:
            x_BLD = block(x_BLD, ctx)
        return x_BLD

    compare(model, theirs, parts, tolerance=1e-10, read=stream)


@pytest.mark.parametrize("num_heads", [1, 2, 4, 8, 16])
def test_the_slopes_of_bloom(num_heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    mask = torch.ones(1, 6)
    theirs = build_alibi_tensor(mask, num_heads, torch.float64).reshape(num_heads, 6)
    ours = slopes(num_heads, device=torch.device("cpu"), dtype=torch.float64)[:, None] * torch.arange(6)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)


@pytest.mark.parametrize("both_ways", [False, True])
def test_the_buckets_of_t5(both_ways: bool) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    ahead_S = torch.arange(-600, 601)
    theirs = T5Attention._relative_position_bucket(-ahead_S, bidirectional=both_ways)
    assert torch.equal(buckets(ahead_S, both_ways=both_ways), theirs)


@pytest.mark.parametrize("length", [1, 17, 130])
def test_gated_attention_is_that_of_qwen3_next(length: int) -> None:
    """Without its norms of queries and keys, and without positions; theirs takes softmax in fp32."""
    qwen = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    ours = Attention(WIDTH, HEADS, positions="none", num_kv_heads=2, gated=True).double()
    config = transformers.Qwen3NextConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, num_key_value_heads=2, head_dim=WIDTH // HEADS
    )
    config._attn_implementation = "eager"
    theirs = qwen.Qwen3NextAttention(config, 0).double()
    theirs.q_norm = theirs.k_norm = nn.Identity()
    queries, keys, values = ours.query_key_value.weight.split([WIDTH, WIDTH // 2, WIDTH // 2])
    by_head = [weight.view(HEADS, WIDTH // HEADS, WIDTH) for weight in (queries, ours.gate.weight)]
    with torch.no_grad():
        theirs.q_proj.weight.copy_(torch.cat(by_head, 1).flatten(0, 1))
        for name, weight in {"k_proj": keys, "v_proj": values, "o_proj": ours.out.weight}.items():
            getattr(theirs, name).weight.copy_(weight)
    x_BLD = torch.randn(2, length, WIDTH, dtype=torch.float64)
    still = torch.ones(1, length, WIDTH // HEADS).double(), torch.zeros(1, length, WIDTH // HEADS).double()
    ahead_LL = torch.full((length, length), -torch.inf, dtype=torch.float64).triu(1)
    expected_BLD, _ = theirs(x_BLD, still, ahead_LL[None, None])
    expected_BLD.square().sum().backward()
    of_queries, of_gates = theirs.q_proj.weight.grad.view(HEADS, 2, -1, WIDTH).unbind(1)
    for backend in BACKENDS:
        y_BLD = ours(x_BLD, Context(backend=backend))
        torch.testing.assert_close(y_BLD, expected_BLD, rtol=1e-6, atol=1e-6)
        found = torch.autograd.grad(y_BLD.square().sum(), [ours.query_key_value.weight, ours.gate.weight])
        grads = [of_queries.flatten(0, 1), theirs.k_proj.weight.grad, theirs.v_proj.weight.grad]
        for one, other in zip(found, (torch.cat(grads), of_gates.flatten(0, 1)), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
