;;; The main job in Emacs with eglot: see the finding, hover, apply the proved fix, see it go.  -*- lexical-binding: t -*-
;;; Run with: emacs --batch -l emacs.el; GRAPHGUARD_CONFIG is the configuration, GRAPHGUARD_FILE the file to open.

(require 'cl-lib)
(package-initialize)
(load (getenv "GRAPHGUARD_CONFIG"))
(require 'flymake)

(defun check (what condition)
  "Report WHAT and end with status 1 unless CONDITION holds."
  (princ (format "%s%s\n" (if condition "ok      " "FAILED  ") what))
  (unless condition (kill-emacs 1)))

(defun wait-for (what seconds condition)
  "Wait until CONDITION gives non-nil, SECONDS at most."
  (let ((end (+ (float-time) seconds)) (value nil))
    (while (and (not (setq value (funcall condition))) (< (float-time) end))
      (accept-process-output nil 0.05))
    (check what value)
    value))

(defun findings ()
  "The errors that flymake shows."
  (cl-remove-if-not (lambda (diagnostic) (eq (flymake-diagnostic-type diagnostic) 'eglot-error)) (flymake-diagnostics)))

;; A batch Emacs has no menus and no idle timers.
(setq last-nonmenu-event ?x
      eglot-sync-connect 60
      eglot-send-changes-idle-time 0)
(find-file (getenv "GRAPHGUARD_FILE"))
(python-mode)
(unless (eglot-managed-p) (apply #'eglot (eglot--guess-contact)))
(wait-for "eglot manages the buffer" 60 #'eglot-managed-p)
(flymake-mode 1)
(let ((finding (car (wait-for "the forgotten all-reduce is found" 120 #'findings))))
  (check "with its rule" (string-match-p "missing-reduction\\|partial" (flymake-diagnostic-text finding)))
  (goto-char (flymake-diagnostic-beg finding))
  (check "at the line that needs it" (save-excursion (search-forward "self.down" (line-end-position) t))))
(defun relation-hover ()
  "The text of the hover at point, once it tells a relation."
  (let* ((hover (jsonrpc-request (eglot--current-server-or-lose) :textDocument/hover (eglot--TextDocumentPositionParams)))
         (text (and hover (eglot--hover-info (plist-get hover :contents) (plist-get hover :range)))))
    (and text (string-match-p "sum" text) text)))
(princ (format "        %s\n" (wait-for "the hover tells the relation" 60 #'relation-hover)))
(defun choose-proved (_prompt collection &rest _)
  "The user who picks the collective from the menu, or leaves the menu while it is not there."
  (or (cl-find-if (lambda (title) (string-match-p "all_reduce" title)) (mapcar (lambda (entry) (if (consp entry) (car entry) entry)) collection))
      (signal 'quit nil)))
(defun apply-proved ()
  "Apply the fix once it is offered: the finding is shown at once, its fixes when they are proved."
  (cl-letf (((symbol-function 'completing-read) #'choose-proved))
    (condition-case nil (eglot-code-actions (point) nil "quickfix" t) (quit nil)))
  (save-excursion (goto-char (point-min)) (search-forward "dist.all_reduce(" nil t)))
(wait-for "the proved fix is applied" 60 #'apply-proved)
(eglot--signal-textDocument/didChange)
(wait-for "the finding goes" 60 (lambda () (null (findings))))
(eglot-shutdown (eglot--current-server-or-lose))
(check "the server ends" (not (eglot-managed-p)))
(kill-emacs 0)
