-- The main job in Neovim: see the line that breaks refinement, hover, apply the proved fix, see it go.
-- Run with: nvim --clean --headless -c 'luafile neovim.lua'; GRAPHGUARD_CONFIG is the configuration, GRAPHGUARD_FILE the file to open.
local FIRST_CHECK = 120000
local PATIENCE = 60000

local function check(what, condition)
  io.stdout:write((condition and "ok      " or "FAILED  ") .. what .. "\n")
  if not condition then
    vim.cmd("cquit 1")
  end
end

local function wait(what, milliseconds, condition)
  check(what, vim.wait(milliseconds, condition, 50))
end

local function story()
  dofile(vim.env.GRAPHGUARD_CONFIG)
  vim.cmd.edit(vim.env.GRAPHGUARD_FILE)
  vim.bo.filetype = "python"

  local function findings()
    return vim.diagnostic.get(0, { severity = vim.diagnostic.severity.ERROR })
  end

  wait("the server attaches", PATIENCE, function()
    return #vim.lsp.get_clients({ bufnr = 0, name = "graphguard" }) == 1
  end)
  wait("the forgotten all-reduce is found", FIRST_CHECK, function()
    return #findings() == 1
  end)
  local finding = findings()[1]
  check("with its rule", finding.code == "missing-reduction")
  local line = vim.api.nvim_buf_get_lines(0, finding.lnum, finding.lnum + 1, false)[1]
  check("at the line that needs it: " .. line, line:find("self.down", 1, true) ~= nil)

  vim.api.nvim_win_set_cursor(0, { finding.lnum + 1, finding.col })
  local floating
  wait("the hover opens", PATIENCE, function()
    vim.lsp.buf.hover()
    vim.wait(500, function()
      for _, window in ipairs(vim.api.nvim_list_wins()) do
        if vim.api.nvim_win_get_config(window).relative ~= "" then
          floating = window
        end
      end
      return floating ~= nil
    end, 20)
    return floating ~= nil
  end)
  local hover = table.concat(vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(floating), 0, -1, false), "\n")
  check("and tells the relation: " .. hover:sub(1, 200), hover:find("sum", 1, true) ~= nil)
  vim.api.nvim_win_close(floating, true)

  -- The finding is shown at once, its fixes when they are proved: the menu is opened until it has one, which is chosen once.
  local answered, chosen
  vim.ui.select = function(items, _, on_choice)
    answered = true
    for index, item in ipairs(items) do
      if item.action.title:find("all_reduce", 1, true) then
        chosen = true
        return on_choice(item, index)
      end
    end
    on_choice(nil)
  end
  wait("the menu has the proved fix", PATIENCE, function()
    answered = false
    vim.lsp.buf.code_action()
    vim.wait(1000, function()
      return answered
    end, 20)
    return chosen
  end)
  wait("it is applied", PATIENCE, function()
    return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\n"):find("dist.all_reduce%(") ~= nil
  end)
  wait("the finding goes", PATIENCE, function()
    return #findings() == 0
  end)

  local client = vim.lsp.get_clients({ bufnr = 0, name = "graphguard" })[1]
  client:stop()
  wait("the server ends", PATIENCE, function()
    return client:is_stopped()
  end)
end

local ok, message = xpcall(story, debug.traceback)
if not ok then
  io.stdout:write("FAILED  " .. message .. "\n")
  vim.cmd("cquit 1")
end
vim.cmd("qall!")
